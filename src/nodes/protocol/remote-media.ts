import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'

/** An address in a request, at a place that could contain the media's bytes instead. */
type RemoteMedia = {
  /** Path of the member, such as `messages.0.content.1.image_url.url`. */
  readonly path: string
  /** True for http and https. No backend may fetch another scheme, such as file. */
  readonly isWeb: boolean
}

/**
 * Finds an address that a backend would fetch, in a request of any dialect. Null: the request
 * contains all its media. Prefers an address that is not http or https.
 *
 * An address is a danger: the caller chooses it, and servers in the backend's network may trust the
 * backend. Backends ignore the type of a content part, and read members that the interface lacks,
 * such as `video_url`. Therefore every member of a part is searched, except members with words.
 */
export function remoteMediaOf(request: JsonObject): RemoteMedia | null {
  let web: RemoteMedia | null = null
  for (const [value, path] of listPlaces(request))
    for (const media of listAddresses(value, path)) {
      if (!media.isWeb) return media
      web ??= media
    }
  return web
}

/** Lists the members in which callers send media, in any dialect, with the members' paths. */
function* listPlaces(request: JsonObject): Generator<readonly [Json, string]> {
  for (const list of ['messages', 'input', 'tools']) {
    const entries = memberOf(request, list)
    for (const [at, entry] of isJsonArray(entries) ? entries.entries() : [])
      for (const name of ['content', 'output', 'server_url'] as const) {
        const value = isJsonObject(entry) ? memberOf(entry, name) : undefined
        // Backends read a string here as text and fetch nothing, except in server_url.
        if (isJsonArray(value) || isJsonObject(value)) yield [value, `${list}.${at}.${name}`]
        else if (name === 'server_url' && value !== undefined)
          yield [{ [name]: value }, `${list}.${at}`]
      }
  }
  const servers = memberOf(request, 'mcp_servers')
  if (isJsonArray(servers)) yield [servers, 'mcp_servers']
}

export function remoteMediaFault({ path, isWeb }: RemoteMedia): string {
  const what = isWeb ? 'no node of this model fetches addresses' : 'no node fetches such addresses'
  return `${path}: expected a data URL, got an address, but ${what}: send the image itself, as data:image/png;base64,…`
}

/**
 * Lists the addresses in a value. Uses its own stack, because the call stack is too small for a
 * caller's deepest value.
 */
function* listAddresses(content: Json, path: string): Generator<RemoteMedia> {
  const open: { readonly value: Json; readonly path: string }[] = [{ value: content, path }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value } = next
    if (!isJsonArray(value) && !isJsonObject(value)) continue
    for (const [name, member] of Object.entries(value)) {
      if (SAID.has(name) && typeof member === 'object') continue
      const place = `${next.path}.${name}`
      if (typeof member !== 'string') open.push({ value: member ?? null, path: place })
      else if (isAddress(name, member) && !isTextIn(value, name, next.path))
        yield { path: place, isWeb: /^https?:/i.test(member) }
    }
  }
}

/** Members that repeat what a model said: input of tools, and sources. No backend fetches these. */
const SAID: ReadonlySet<string> = new Set(['input', 'citations', 'annotations'])

/** Members of parts that contain words. An address in them is only text. */
const WORDS: ReadonlySet<string> = new Set(
  'text refusal content title context thinking filename'.split(' '),
)

/** Types of parts with a member that only states where a text comes from. */
const SOURCES: ReadonlyMap<unknown, string> = new Map([
  ['search_result', 'source'],
  ['web_search_result', 'url'],
  ['web_fetch_result', 'url'],
])

/** True if the part's type makes a text of a member that can be an address in other parts. */
function isTextIn(part: JsonObject | readonly Json[], name: string, path: string): boolean {
  const type = memberAt(part as Json, 'type')
  if (SOURCES.get(type) === name) return true
  // The words of a document: { type: 'text', media_type: 'text/plain', data }.
  return name === 'data' && type === 'text' && path.endsWith('.source')
}

/**
 * True if a member's text is an address. In a member such as `url` or `uri`, every text except a
 * data URL is an address. In any other member, an address begins with a scheme and `://`.
 */
function isAddress(name: string, text: string): boolean {
  if (WORDS.has(name) || /^data:/i.test(text)) return false
  return /ur[il]$/i.test(name) || /^\s*[a-z][a-z0-9+.-]*:\/\//i.test(text)
}
