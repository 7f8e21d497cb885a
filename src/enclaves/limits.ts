/** Enclaves that one gateway talks to. Each costs a connection that waits, and a look a second. */
export const ENCLAVES_MAX = 32
