// Our own messages, beside LSP's. Mirrors server/kernelwright/lsp/protocol.py field by field: change both or neither.
import { NotificationType, RequestType } from 'vscode-languageclient/node';
import type { Position } from 'vscode-languageclient/node';

export interface GenerateParams {
  uri: string;
  qualname: string;
  inputs?: string;
  instruction?: string;
  workDoneToken?: string;
}

/** A pending proposal as a diff of the document as it is now. `summary` is Markdown. */
export interface ProposalInfo {
  id: string;
  uri: string;
  qualname: string;
  title: string;
  summary: string;
  originalText: string;
  proposedText: string;
  version?: number;
}

export interface GenerateResult {
  outcome: 'proposed' | 'kept' | 'declined' | 'failed' | 'inputsNeeded' | 'invalidInputs' | 'stale' | 'error';
  message: string;
  qualname: string;
  proposal?: ProposalInfo;
  suggestion?: string;
  problem?: string;
}

export interface RecheckParams {
  uri: string;
  qualname: string;
  workDoneToken?: string;
}

export interface RecheckResult {
  outcome: 'passed' | 'refuted' | 'error';
  message: string;
}

export interface ProposalsResult {
  proposals: ProposalInfo[];
}

/** `spec` is "" when nothing says what the function is called with; `suggestion` prefills the box then. */
export interface InputsResult {
  spec: string;
  origin: string;
  suggestion: string;
  problem?: string;
}

export interface ValidateInputsResult {
  problem?: string;
}

export interface StatusResult {
  state: 'ready' | 'busy' | 'problem';
  provider: string;
  interpreter: string;
  message: string;
  jobs: number;
}

/** Asks which target holds `position`, or where the target `qualname` is now. */
export interface TargetAtParams {
  uri: string;
  position?: Position;
  qualname?: string;
}

export interface TargetAtResult {
  qualname?: string;
  position?: Position;
}

export interface ProposalsChanged {
  uri: string;
  proposals: { id: string; qualname: string; state: 'pending' | 'accepted' | 'rejected' | 'stale' }[];
}

/** What the server's accept, reject and remove commands answer. */
export interface CommandResult {
  applied: boolean;
  message: string;
}

export interface InitializationOptions {
  clientCommands: boolean;
}

export const Generate = new RequestType<GenerateParams, GenerateResult, void>('kernelwright/generate');
export const Recheck = new RequestType<RecheckParams, RecheckResult, void>('kernelwright/recheck');
export const Proposals = new RequestType<{ uri?: string }, ProposalsResult, void>('kernelwright/proposals');
export const Inputs = new RequestType<{ uri: string; qualname: string }, InputsResult, void>(
  'kernelwright/inputs',
);
export const ValidateInputs = new RequestType<{ text: string }, ValidateInputsResult, void>(
  'kernelwright/validateInputs',
);
export const Status = new RequestType<object, StatusResult, void>('kernelwright/status');
export const TargetAt = new RequestType<TargetAtParams, TargetAtResult, void>('kernelwright/targetAt');
export const DidChangeProposals = new NotificationType<ProposalsChanged>('kernelwright/proposalsChanged');

/** Commands of the server; `kernelwright.accept` and the rest without `server` are the client's own. */
export const ServerCommand = {
  accept: 'kernelwright.server.accept',
  reject: 'kernelwright.server.reject',
  remove: 'kernelwright.server.remove',
} as const;
