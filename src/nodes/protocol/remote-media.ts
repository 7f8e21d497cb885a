import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** An address in a request, where the media's bytes could be instead. */
export type RemoteMedia = {
  /** Path of the member, such as `messages.0.content.1.image_url.url`. */
  readonly path: string
  /**
   * Whether the address is http or https. No backend may fetch an address with another scheme, such
   * as file.
   */
  readonly isWeb: boolean
}

/**
 * Finds an address in a chat request that a backend would fetch. Gives the first address that is
 * not http or https; if there is no such address, gives the first address. Null when the request
 * itself contains all pictures, sounds and files. A caller chooses the address, and the backend
 * fetches it from its own network, where other servers may trust the backend. Backends also read
 * members that the interface does not have, such as `video_url`, and they use a part's members and
 * ignore its type. So in a content part only its words may contain an address, and a member whose
 * name ends in url or uri must be a data URL.
 */
export function remoteMediaOf(request: JsonObject): RemoteMedia | null {
  const messages = memberOf(request, 'messages')
  if (!isJsonArray(messages)) return null
  let web: RemoteMedia | null = null
  for (const [at, message] of messages.entries()) {
    const content = isJsonObject(message) ? memberOf(message, 'content') : undefined
    // Content that is only text, the usual case, has no parts.
    if (!isJsonArray(content) && !isJsonObject(content)) continue
    for (const media of listAddresses(content, `messages.${at}.content`)) {
      if (!media.isWeb) return media
      web ??= media
    }
  }
  return web
}

/**
 * Gives the error text for a request whose media no node fetches. It says what the caller can do.
 */
export function remoteMediaFault({ path, isWeb }: RemoteMedia): string {
  const what = isWeb ? 'no node of this model fetches addresses' : 'no node fetches such addresses'
  return `${path}: expected a data URL, got an address, but ${what}: send the image itself, as data:image/png;base64,…`
}

/**
 * Lists the addresses in a value. It uses its own stack, because a caller's value may be nested
 * deeper than the call stack allows.
 */
function* listAddresses(content: Json, path: string): Generator<RemoteMedia> {
  const open: { readonly value: Json; readonly path: string }[] = [{ value: content, path }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value } = next
    if (!isJsonArray(value) && !isJsonObject(value)) continue
    for (const [name, member] of Object.entries(value)) {
      const place = `${next.path}.${name}`
      if (typeof member !== 'string') open.push({ value: member ?? null, path: place })
      else if (isAddress(name, member)) yield { path: place, isWeb: /^https?:/i.test(member) }
    }
  }
}

/** Members of parts that contain words. An address in such a member is only text. */
const WORDS: ReadonlySet<string> = new Set(['text', 'refusal'])

/**
 * Whether a member is an address. A member with a name for addresses is an address unless it is a
 * data URL. Under any other name, the form of the text decides.
 */
function isAddress(name: string, text: string): boolean {
  if (WORDS.has(name) || /^data:/i.test(text)) return false
  return /ur[il]$/i.test(name) || /^\s*[a-z][a-z0-9+.-]*:\/\//i.test(text)
}
