import type { FoundItem } from './providers.ts'

/** Code points. Longer texts are cut. A result with a longer URL is left out. */
export const TITLE_LENGTH_MAX = 300
export const SNIPPET_LENGTH_MAX = 2_000
export const URL_LENGTH_MAX = 2_048

type SearchResult = {
  readonly title: string
  /** An http or https URL, without user and password. */
  readonly url: string
  readonly snippet: string
  /** From 1, best first. */
  readonly position: number
}

/** Returns the first `max` items that have a usable address. */
export function normaliseResults(
  items: readonly FoundItem[],
  max: number,
): readonly SearchResult[] {
  const results: SearchResult[] = []
  for (const { title, url, snippet } of items) {
    if (results.length >= max) break
    const address = readAddress(url)
    if (address === null) continue
    results.push({
      title: readText(title, TITLE_LENGTH_MAX) || address,
      url: address,
      snippet: readText(snippet, SNIPPET_LENGTH_MAX),
      position: results.length + 1,
    })
  }
  return results
}

/**
 * Refuses addresses that are not results, such as `javascript:`, and deceptive addresses such as
 * `https://bank.example@evil.example/`.
 */
function readAddress(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > URL_LENGTH_MAX || !URL.canParse(value))
    return null
  const { protocol, username, password, href } = new URL(value)
  const isWeb = protocol === 'http:' || protocol === 'https:'
  return isWeb && username + password === '' && href.length <= URL_LENGTH_MAX ? href : null
}

function readText(value: unknown, lengthMax: number): string {
  if (typeof value !== 'string') return ''
  const text = value
    .slice(0, 4 * lengthMax)
    .toWellFormed()
    .replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, ' ')
    .trim()
  return [...text].slice(0, lengthMax).join('')
}
