// The workbench as a person uses it: all selectors of VS Code's pages are here.
import path from 'node:path';

export class Editor {
  constructor(page, folder) {
    this.page = page;
    this.folder = folder;
  }

  // --- places

  /** A line of the code editor (not of a diff). */
  line(text) {
    return this.page
      .locator('.editor-instance .monaco-editor:not(.original-in-monaco-diff-editor) .view-line', {
        hasText: text,
      })
      .first();
  }

  /** The lenses that say `text`, of the whole window. */
  lens(text) {
    return this.page.locator('.codelens-decoration a', { hasText: text }).first();
  }

  /** Clicks the lens that stands right above a line. The page lists lenses in no order, and draws them anew at any time. */
  async clickLens(text, above) {
    for (let attempt = 1; ; attempt++) {
      await this.page.waitForFunction(markLens, [text, above]);
      try {
        return await this.page.locator('[data-wanted]').click({ timeout: 1000 });
      } catch (error) {
        if (attempt === 10) throw error;
      }
    }
  }

  /** A line of a diff's right side. */
  proposedLine(text) {
    return this.page.locator('.monaco-diff-editor .editor.modified .view-line', { hasText: text }).first();
  }

  tab(text) {
    return this.page.locator('.tab', { hasText: text });
  }

  toast(text) {
    return this.page.locator('.notifications-toasts .notification-list-item', { hasText: text });
  }

  button(toast, label) {
    return toast.locator('.monaco-button', { hasText: label });
  }

  hover(text) {
    return this.page.locator('.monaco-hover:visible', { hasText: text });
  }

  squiggle(kind = 'warning') {
    return this.page.locator(`.squiggly-${kind}`);
  }

  status(text) {
    return this.page.locator('.statusbar-item', { hasText: text });
  }

  titleAction(label) {
    return this.page.locator(`.editor-actions .action-label[aria-label^="${label}"]`);
  }

  inputBox() {
    return this.page.locator('.quick-input-widget input.input');
  }

  row(label) {
    return this.page.locator('.quick-input-list .monaco-list-row', { hasText: label });
  }

  // --- deeds

  async open(name) {
    await this.page.keyboard.press('Control+p');
    await this.inputBox().fill(name);
    await this.row(path.basename(name)).first().waitFor();
    await this.page.keyboard.press('Enter');
    await this.tab(path.basename(name)).first().waitFor();
  }

  /** Runs a command by its exact title: the first row of the palette may be another. */
  async run(title) {
    await this.page.keyboard.press('F1');
    await this.inputBox().fill(`>${title}`);
    const exact = new RegExp(`^${title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
    await this.page
      .locator('.quick-input-list .monaco-list-row .label-name', { hasText: exact })
      .first()
      .click();
  }

  /** Puts the cursor at the end of a line. */
  async cursorTo(text) {
    await this.line(text).click();
    await this.page.keyboard.press('End');
  }

  /** Opens the context menu on a line. */
  async openMenu(text) {
    await this.line(text).click({ button: 'right', position: { x: 60, y: 9 } });
  }

  menuItem(text) {
    return this.page.locator('.monaco-menu .action-item', { hasText: text });
  }

  /** Right-clicks a line and chooses from the menu, again where the click came within the 100 ms that a new menu ignores. */
  async rightClick(text, item) {
    await this.openMenu(text);
    const entry = this.menuItem(item);
    for (let attempt = 1; ; attempt++) {
      await entry.click();
      try {
        return await entry.waitFor({ state: 'detached', timeout: 1000 });
      } catch (error) {
        if (attempt === 3) throw error;
      }
    }
  }

  /** Accepts the diff in front, and waits until the file has the focus with the cursor at the function's name. */
  async accept(name) {
    await this.titleAction('Accept Kernel').click();
    await this.tab(`Triton kernel for ${name}`).waitFor({ state: 'detached' });
    await this.page.locator('.editor-instance .monaco-editor.focused').waitFor();
    await this.page.locator('.editor-instance .view-line', { hasText: `def ${name}(` }).waitFor();
    await this.lens('Re-check').waitFor();
  }

  /** Where the status bar says that the cursor is. */
  async cursor() {
    const said = await this.page.locator('.statusbar-item', { hasText: /^Ln \d/ }).innerText();
    const [, line, column] = /Ln (\d+), Col (\d+)/.exec(said);
    return { line: Number(line), column: Number(column) };
  }

  /** Rests the mouse on a word until the hover says `text`; a redraw under the mouse closes a hover, so again if need be. */
  async hoverOver(line, word, text) {
    const target = this.line(line)
      .locator('span', { hasText: new RegExp(`^${word}$`) })
      .first();
    for (let attempt = 1; ; attempt++) {
      // A click first: after a right-click whose menu was left by the keyboard, VS Code shows no hovers.
      await this.page.mouse.click(700, 700);
      await target.hover();
      try {
        await this.hover(text).first().waitFor({ timeout: 3000 });
        return this.hover(text).first();
      } catch (error) {
        if (attempt === 4) throw error;
      }
    }
  }

  async save() {
    await this.page.keyboard.press('Control+s');
    await this.page.locator('.tab.active.dirty').waitFor({ state: 'detached' });
  }

  /** Clears the messages and waits for the last progress to fade: VS Code shows at most three toasts in 800 ms. */
  async clearToasts() {
    await this.run('Notifications: Clear All Notifications');
    await this.page.waitForFunction(
      () => !document.querySelector('.notifications-toasts .notification-list-item'),
    );
  }

  async closeTab() {
    await this.page.locator('.tab.active .tab-actions .action-label').click();
  }

  // --- messages

  /** Collects the text of every notification from now on, also of those that come and go. */
  async watchMessages() {
    await this.page.evaluate(() => {
      globalThis.seenMessages = [];
      const note = () => {
        for (const item of document.querySelectorAll('.notification-list-item-message')) {
          const text = item.textContent;
          if (text && !globalThis.seenMessages.includes(text)) globalThis.seenMessages.push(text);
        }
      };
      new MutationObserver(note).observe(document.body, {
        subtree: true,
        childList: true,
        characterData: true,
      });
    });
  }

  messages() {
    return this.page.evaluate(() => globalThis.seenMessages);
  }
}

/** In the page: marks the lens that says `text` right above the line that says `above`. */
function markLens([text, above]) {
  for (const old of document.querySelectorAll('[data-wanted]')) old.removeAttribute('data-wanted');
  const lines = [...document.querySelectorAll('.editor-instance .view-line')];
  const line = lines.find(each => each.textContent.replaceAll('\u00a0', ' ').includes(above));
  const top = line?.getBoundingClientRect().top;
  const near = [...document.querySelectorAll('.codelens-decoration a')].find(lens => {
    const distance = top - lens.getBoundingClientRect().top;
    return lens.textContent.includes(text) && distance > 0 && distance < 30;
  });
  near?.setAttribute('data-wanted', '');
  return Boolean(near);
}
