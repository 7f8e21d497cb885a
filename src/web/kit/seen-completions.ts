/*
 * Completions whose pages this tab opened, by their leaves: the public log does not lead from a
 * leaf to a completion, and this tab's reader knows the hash. They end with the tab.
 */

const NAME = 'affidavit:completions'

/** Completions that are kept at most; the oldest go first. */
const SEEN_MAX = 200

/** Which leaf a completion is. */
export type Leaf = { readonly notary: string; readonly index: number }

/** Keeps which leaf the completion is whose page was opened. */
export function keepCompletion({ notary, index }: Leaf, hash: string): void {
  try {
    const kept = Object.entries(readAll()).filter(([leaf]) => leaf !== `${notary}/${index}`)
    const all = [...kept, [`${notary}/${index}`, hash]].slice(-SEEN_MAX)
    sessionStorage.setItem(NAME, JSON.stringify(Object.fromEntries(all)))
  } catch {
    // A browser that allows no storage: leaves lead nowhere.
  }
}

/** The hash of the completion at a leaf, 64 hex digits; null when this tab has not opened it. */
export function findCompletion({ notary, index }: Leaf): string | null {
  const hash = readAll()[`${notary}/${index}`]
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/** Extensions and people write there, too. */
function readAll(): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
