/*
 * Completions whose pages were opened in this tab, by leaf. The public log does not show the
 * completion of a leaf, but the reader of this tab knows the hash. The list ends with the tab.
 */

const NAME = 'affidavit:completions'

/** Maximum number of completions that are kept. The oldest are removed first. */
const SEEN_MAX = 200

/** The leaf of a completion. */
export type Leaf = { readonly notary: string; readonly index: number }

/** Keeps the leaf of a completion whose page was opened. */
export function keepCompletion({ notary, index }: Leaf, hash: string): void {
  try {
    const kept = Object.entries(readAll()).filter(([leaf]) => leaf !== `${notary}/${index}`)
    const all = [...kept, [`${notary}/${index}`, hash]].slice(-SEEN_MAX)
    sessionStorage.setItem(NAME, JSON.stringify(Object.fromEntries(all)))
  } catch {
    // The browser does not allow storage, so leaves have no link to completions.
  }
}

/**
 * Hash of the completion of a leaf, 64 hex digits. Null when the completion was not opened in this
 * tab.
 */
export function findCompletion({ notary, index }: Leaf): string | null {
  const hash = readAll()[`${notary}/${index}`]
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/** The content may have any form, because extensions and people can also write to this storage. */
function readAll(): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
