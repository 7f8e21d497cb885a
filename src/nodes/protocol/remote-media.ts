import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** An address in a request where bytes could be. */
export type RemoteMedia = {
  /** Where it stands, such as `messages.0.content.1.image_url.url`. */
  readonly path: string
  /** Whether it is http or https; else it is of no scheme that is ever asked for, such as file. */
  readonly isWeb: boolean
}

/**
 * Gives the address in a chat request that whoever serves it would fetch: the first that is not of
 * the web, else the first. Null when all pictures, sounds and files are in the request itself.
 *
 * A caller chooses the address, and it is asked from the server's own network: what answers there
 * may trust its neighbours. Servers read members of names such as `video_url` beside the ones of
 * the interface, and parts by their members, whatever the type says. So nothing in a content part
 * but its words may be an address, and what is one by its name has to be a data URL.
 */
export function remoteMediaOf(request: JsonObject): RemoteMedia | null {
  const messages = memberOf(request, 'messages')
  if (!isJsonArray(messages)) return null
  let web: RemoteMedia | null = null
  for (const [at, message] of messages.entries()) {
    const content = isJsonObject(message) ? memberOf(message, 'content') : undefined
    // Text alone, the usual case, has no parts.
    if (!isJsonArray(content) && !isJsonObject(content)) continue
    for (const media of listAddresses(content, `messages.${at}.content`)) {
      if (!media.isWeb) return media
      web ??= media
    }
  }
  return web
}

/** What is wrong with a request whose media are fetched by no one, and what to do about it. */
export function remoteMediaFault({ path, isWeb }: RemoteMedia): string {
  const what = isWeb ? 'no node of this model fetches addresses' : 'no node fetches such addresses'
  return `${path}: expected a data URL, got an address, but ${what}: send the image itself, as data:image/png;base64,…`
}

/** A stack of its own: what a caller nests may be deeper than that of calls. */
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

/** Members of parts that are words, in which an address is one. */
const WORDS: ReadonlySet<string> = new Set(['text', 'refusal'])

/** An address by its name, which has to be a data URL, or by its form, whatever it is called. */
function isAddress(name: string, text: string): boolean {
  if (WORDS.has(name) || /^data:/i.test(text)) return false
  return /ur[il]$/i.test(name) || /^\s*[a-z][a-z0-9+.-]*:\/\//i.test(text)
}
