/*
 * Completions whose pages were opened in this tab, by leaf. The public log does not show the
 * completion of a leaf, but this tab has these hashes. The list is lost when the tab closes.
 */

const NAME = 'affidavit:completions'

/** Maximum number of completions that are kept. The oldest are removed first. */
const SEEN_MAX = 200

/** The leaf of a completion. */
export type Leaf = { readonly notary: string; readonly index: number }

/** Stores the leaf and the hash of a completion whose page was opened. */
export function keepCompletion({ notary, index }: Leaf, hash: string): void {
  try {
    const kept = Object.entries(readAll()).filter(([leaf]) => leaf !== `${notary}/${index}`)
    const all = [...kept, [`${notary}/${index}`, hash]].slice(-SEEN_MAX)
    sessionStorage.setItem(NAME, JSON.stringify(Object.fromEntries(all)))
  } catch {
    // Without storage, leaves have no link to completions.
  }
}

/**
 * Returns the hash (64 hex digits) of a leaf's completion, or null when it was not opened in this
 * tab.
 */
export function findCompletion({ notary, index }: Leaf): string | null {
  const hash = readAll()[`${notary}/${index}`]
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/**
 * Reads the stored list, which may have any form: extensions and people can write to this storage.
 */
function readAll(): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
