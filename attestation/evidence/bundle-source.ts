import { type Json, memberOf } from '../json/value.ts'
import { isStatedText } from '../stated-text.ts'
import { bundleForms } from './bundle-forms.ts'

const { invalid, membersOf, objectOf } = bundleForms

/** Characters. */
export const SOURCE_URL_LENGTH_MAX = 300
/** Code points. */
const OPERATOR_LENGTH_MAX = 200

/**
 * The stated source of a bundle: a hint that shows the reader whom to ask. The hint is not signed,
 * hashed or checked, and no code fetches its URLs. At least one member is present.
 */
export type BundleSource = {
  readonly gateway?: string
  /** Name of the person or company that runs the gateway. */
  readonly operator?: string
  /** URL of the operator's list of releases. */
  readonly releases?: string
}

const SOURCE_MEMBERS = ['gateway', 'operator', 'releases'] as const

/**
 * Reads the source in attacker-controlled `json`. Throws FormatError `invalid_bundle`, also for an
 * unknown member.
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
  if (typeof json !== 'string' || !isOperatorName(json)) throw invalid(name, OPERATOR_NAME_FORM)
  return json
}

/** The form of an operator's name, for people. */
export const OPERATOR_NAME_FORM =
  `1 to ${OPERATOR_LENGTH_MAX} characters, without control characters, invisible characters, ` +
  'and blanks at an end or side by side'

/** Does not check that the server exists. */
export function isSourceUrl(text: string): boolean {
  return text.length <= SOURCE_URL_LENGTH_MAX && SOURCE_URL.test(text)
}

export function isOperatorName(text: string): boolean {
  return isStatedText(text, OPERATOR_LENGTH_MAX) && !ODD_BLANKS.test(text)
}

/** Spaces that could fake a new line in a report, and invisible letters. */
const ODD_BLANKS = /^\p{Zs}|\p{Zs}{2}|\p{Zs}$|\p{Default_Ignorable_Code_Point}/u

/** Refuses a user name before the host, because it could look like a host. Only printable ASCII. */
const SOURCE_URL = /^https?:\/\/[-.:0-9A-Z_a-z[\]]+([/?][!-~]*)?$/
