/*
 * The public log does not show the completion of a leaf, but this tab has the hashes of the
 * completions whose pages it opened. The list is lost when the tab closes.
 */

const NAME = 'affidavit:completions'

/** The oldest completions are removed first. */
const SEEN_MAX = 200

/** The leaf of a completion. */
export type Leaf = { readonly notary: string; readonly index: number }

/** Called when the page of the completion opens. */
export function keepCompletion({ notary, index }: Leaf, hash: string): void {
  try {
    const kept = Object.entries(readAll()).filter(([leaf]) => leaf !== `${notary}/${index}`)
    const all = [...kept, [`${notary}/${index}`, hash]].slice(-SEEN_MAX)
    sessionStorage.setItem(NAME, JSON.stringify(Object.fromEntries(all)))
  } catch {
    // Without storage, leaves have no link to completions.
  }
}

/** 64 hex digits. Null when the completion was not opened in this tab. */
export function findCompletion({ notary, index }: Leaf): string | null {
  const hash = readAll()[`${notary}/${index}`]
  return typeof hash === 'string' && /^[0-9a-f]{64}$/.test(hash) ? hash : null
}

/** The list may have any form: extensions and people can write to this storage. */
function readAll(): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '{}')
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
