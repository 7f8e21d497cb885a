import { type Json, memberOf } from '../json/value.ts'
import { isStatedText } from '../stated-text.ts'
import { bundleForms } from './bundle-forms.ts'

const { invalid, membersOf, objectOf } = bundleForms

/** Longest URL in a source, characters. */
export const SOURCE_URL_LENGTH_MAX = 300
/** Longest name of an operator, code points. */
export const OPERATOR_LENGTH_MAX = 200

/**
 * Where a bundle says that it is from, for a reader who wants to know whom to ask. A hint: nothing
 * signs or hashes it, no check reads it, and no code asks these addresses. It has one member at
 * least.
 */
export type BundleSource = {
  /** URL of the gateway. */
  readonly gateway?: string
  /** Name of the person or company that runs the gateway. */
  readonly operator?: string
  /** URL of the operator's list of releases. */
  readonly releases?: string
}

const SOURCE_MEMBERS = ['gateway', 'operator', 'releases'] as const

/**
 * The source that attacker-controlled `json` is, with no other members. Throws FormatError
 * `invalid_bundle`.
 */
export function parseSource(json: Json | undefined): BundleSource {
  const given = objectOf(json, 'source')
  const names = SOURCE_MEMBERS.filter((name) => Object.hasOwn(given, name))
  if (names.length === 0)
    throw invalid('source', `an object of one or more of ${SOURCE_MEMBERS.join(', ')}`)
  membersOf(given, 'source', names)
  return Object.fromEntries(
    names.map((name) => [name, READERS[name](memberOf(given, name), `source.${name}`)]),
  )
}

const READERS = {
  gateway: urlOf,
  operator: operatorOf,
  releases: urlOf,
} as const satisfies Record<keyof BundleSource, (json: Json | undefined, name: string) => string>

function urlOf(json: Json | undefined, name: string): string {
  if (typeof json !== 'string' || !isSourceUrl(json))
    throw invalid(
      name,
      `an http or https URL of at most ${SOURCE_URL_LENGTH_MAX} ASCII characters, without user`,
    )
  return json
}

function operatorOf(json: Json | undefined, name: string): string {
  if (typeof json !== 'string' || !isOperatorName(json))
    throw invalid(name, `1 to ${OPERATOR_LENGTH_MAX} characters without control characters`)
  return json
}

/** Whether text has the form of a URL in a source; that it is one of a server is not checked. */
export function isSourceUrl(text: string): boolean {
  return text.length <= SOURCE_URL_LENGTH_MAX && SOURCE_URL.test(text)
}

/** Whether text can be the name of an operator in a source. */
export function isOperatorName(text: string): boolean {
  return isStatedText(text, OPERATOR_LENGTH_MAX) && !ODD_BLANKS.test(text)
}

/** Blanks that could lay out a line of their own, and letters that are not seen. */
const ODD_BLANKS = /^\p{Zs}|\p{Zs}{2}|\p{Zs}$|\p{Default_Ignorable_Code_Point}/u

/** No user before the host, which could name another host; printable ASCII behind it. */
const SOURCE_URL = /^https?:\/\/[-.:0-9A-Z_a-z[\]]+([/?][!-~]*)?$/
