"""Who writes candidates: the built-in generator, models through their own SDKs, and the scripted fake."""
