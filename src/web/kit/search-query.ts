/** A question for the gateway, or why the page does not ask the gateway. */
export type TypedSearch =
  | { readonly kind: 'hash' | 'notary' | 'block'; readonly text: string }
  /** The message says what the reader should type instead. */
  | { readonly kind: 'unfit'; readonly message: string }

/** An invalid question never leaves the page. */
export function readSearchQuery(typed: string): TypedSearch {
  const text = typed.trim().replace(/^["'“]+|["'”,]+$/g, '')
  if (/^(0x)?[0-9a-f]{64}$/i.test(text)) return { kind: 'hash', text: text.toLowerCase() }
  if (/^(0x)?[0-9a-f]{40}$/i.test(text))
    return { kind: 'notary', text: `0x${text.slice(-40).toLowerCase()}` }
  if (/^#?\d{1,15}$/.test(text)) return { kind: 'block', text: text.replace('#', '') }
  return { kind: 'unfit', message: adviceFor(text) }
}

function adviceFor(text: string): string {
  if (text === '') return 'Enter a hash, a notary, a transaction or the number of a block.'
  if (text.startsWith('afd_'))
    return 'This looks like an API key, so it was not sent. Sign in with it at the console.'
  if (/^(chatcmpl|resp|msg|cmpl)[-_]/.test(text))
    return 'This looks like the id of an answer. Look up its hash: the member “hash”, 64 hex digits.'
  if (/^\d+$/.test(text) && text.length < 40)
    return `The number of a block has at most 15 digits. This has ${text.length}.`
  const [, digits] = /^(?:0x)?([0-9a-f]+)$/i.exec(text) ?? []
  if (digits !== undefined)
    return `This has ${digits.length} hex digits. A hash or a transaction has 64, a notary has 40. Copy the whole value.`
  return 'Expected a hash or a transaction (64 hex digits), a notary (0x and 40 hex digits), or the number of a block.'
}
