/**
 * The API key of this tab. It is held in memory, or, when the reader wants it to outlast a reload,
 * in the tab's own storage, which ends with the tab. It is never in a URL, a cookie, or a storage
 * that other tabs read.
 */

const NAME = 'affidavit-key'

let held: string | null = null

/** The key that was signed in with; null without one. */
export function tabKey(): string | null {
  held ??= storedKey()
  return held
}

/** Signs in; `isKept` is whether a reload of the page finds the key again. */
export function holdKey(key: string, isKept: boolean): void {
  held = key
  if (!isKept) return
  try {
    sessionStorage.setItem(NAME, key)
  } catch {
    // A browser that allows no storage: the key is held until the page is left.
  }
}

/** Signs out. */
export function forgetKey(): void {
  held = null
  try {
    sessionStorage.removeItem(NAME)
  } catch {
    // Nothing was stored.
  }
}

function storedKey(): string | null {
  try {
    return sessionStorage.getItem(NAME)
  } catch {
    return null
  }
}
