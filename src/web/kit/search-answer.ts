import { formsOf } from '#attestation/json/forms.ts'
import type { Json } from '#attestation/json/value.ts'
import type { TypedSearch } from './search-query.ts'
import { shortenHex } from './shorten-hex.ts'

type SearchHit = {
  /** Path of a page of this gateway. */
  readonly href: string
  readonly what: string
}

/** `isCut`: there are more results than these hits. */
export type SearchAnswer = {
  readonly hits: readonly SearchHit[]
  readonly isCut: boolean
  /** The search skipped completions, because this gateway shows completions only to accounts. */
  readonly isRestricted: boolean
}

const { arrayOf, countOf, hexOf, objectOf, textOf } = formsOf(
  'bad_answer',
  "the gateway's answer: ",
)

/**
 * The answer may have any form. Hits lead only to pages of this gateway. Throws FormatError
 * `bad_answer`.
 */
export function readSearchAnswer(json: Json): SearchAnswer {
  const found = objectOf(json, 'it')
  const hits: SearchHit[] = []
  if (found.completion !== null) {
    const { hash, index, notary } = objectOf(found.completion, 'completion')
    const name = hexOf(hash, 'hash', 32)
    hits.push({
      href: `/c/${name}`,
      what: `Completion ${shortenHex(name)}: leaf ${countOf(index, 'index')} of the log of ${shortenHex(addressOf(notary))}`,
    })
  }
  if (found.log !== null) {
    const log = objectOf(found.log, 'log')
    const notary = addressOf(log.notary)
    const size = countOf(log.size, 'size')
    hits.push({
      href: `/log/${notary}`,
      what: `Log of ${shortenHex(notary)}: ${countText(size, 'leaf', 'leaves')}`,
    })
  }
  for (const one of arrayOf(found.heads, 'heads', { min: 0, max: 100 })) {
    const { notary: address, size: leaves } = objectOf(one, 'a head')
    const [notary, size] = [addressOf(address), countOf(leaves, 'size')]
    hits.push({
      href: `/log/${notary}#head-${size}`,
      what: `Head of ${countText(size, 'leaf', 'leaves')} in the log of ${shortenHex(notary)}, and its anchor`,
    })
  }
  return {
    hits,
    isCut: found.more_heads === true,
    isRestricted: found.restricted === true,
  }
}

/**
 * Returns the text for a search without results: what was searched, where, and what to try next.
 */
export function notFoundWords(
  { kind, text }: Exclude<TypedSearch, { kind: 'unfit' }>,
  { isRestricted }: Pick<SearchAnswer, 'isRestricted'>,
): { readonly found: string; readonly advice: string } {
  switch (kind) {
    case 'hash':
      return isRestricted
        ? {
            found:
              'This gateway has no anchor whose transaction or block has this hash. It shows completions only to accounts.',
            advice: 'If this is the hash of your completion, open its page with your API key.',
          }
        : {
            found:
              'This gateway has no completion with this hash, and no anchor whose transaction or block has it.',
            advice:
              'The answer may be of another gateway, or not committed yet. The hashes of a leaf, a request or a response are not looked up. If you have the evidence as a file, drop it on this page.',
          }
    case 'notary':
      return {
        found: 'This gateway has no log of this notary.',
        advice: 'The log may be at another gateway.',
      }
    case 'block':
      return {
        found: `No head of the logs here is anchored in block ${text}.`,
        advice: 'Only blocks with an anchor are found. The newest anchors stand in each log.',
      }
  }
}

function addressOf(json: Json | undefined): string {
  return textOf(json, 'notary', {
    form: /^0x[0-9a-f]{40}$/,
    expectation: '0x and 40 lower-case hex digits',
  })
}

function countText(count: number, one: string, many: string): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}
