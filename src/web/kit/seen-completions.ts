/*
 * The completions whose pages this tab opened, by their leaves. The public log does not lead from a
 * leaf to a completion, but the reader of this tab knows the hash. They end with the tab.
 */

const NAME = 'affidavit:completions'

/** Completions that are kept at most; the oldest are dropped first. */
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
    // The browser allows no storage: then leaves lead to no completion.
  }
}

/** The hash of the completion at a leaf, 64 hex digits; null when this tab has not opened it. */
export function findCompletion({ notary, index }: Leaf): string | null {
  const hash = readAll()[`${notary}/${index}`]
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/** Extensions and people may write there, too. */
function readAll(): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
