import { encodeHex, encodeUtf8, sha256 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { isJsonArray, isJsonObject, type Json, memberOf } from '../../json/value.ts'
import { isBytes } from '../../nitro/document.ts'
import { PolicyError } from '../../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../../own-members.ts'
import {
  createProviderChecks,
  type Established,
  established,
  type ProviderCheck,
} from '../provider-checks.ts'
import { NRAS_CHECKS, type NrasCheckName, refuseGpu } from './gpu-rules.ts'
import { decodeToken, parseTokenKeys, type Token, type TokenKeys, verifyToken } from './token.ts'

/** An answer of the service, with the key set that was stored with it. */
export type NrasEvidence = {
  /** The body: JSON of `["JWT", overall]` and an object of a token for each device. */
  readonly answer: Uint8Array
  /** The body of the service's `.well-known/jwks.json` at that time. */
  readonly keySet: Uint8Array
}

/** What the caller demands. */
export type NrasPolicy = {
  /** The nonce that the caller chose, 32 bytes. */
  readonly nonce: Uint8Array
  /** Default NRAS_ISSUER. */
  readonly issuer?: string
}

/** The issuer of NVIDIA's tokens. */
export const NRAS_ISSUER = 'https://nras.attestation.nvidia.com'

/** What the service states about one device. */
export type NrasDevice = {
  /** `GPU-0` */
  readonly name: string
  readonly hardware: string | null
  readonly driver: string | null
  readonly vbios: string | null
}

export type NrasFacts = {
  readonly devices: readonly NrasDevice[]
  readonly verifiedAtMs: number
}

/** A judged answer. `facts` is null if any check failed. */
export type NrasJudgement = {
  readonly facts: NrasFacts | null
  /** Each check of NRAS_CHECKS once, in order. A check that was not made has not passed. */
  readonly checks: readonly ProviderCheck<NrasCheckName>[]
}

/**
 * Judges an answer of NVIDIA's remote attestation service under `policy` at the time `at`, by rules
 * 9 to 15 of rules.md. It proves what the holder of a key of the key set states, and rests on the
 * key set: that it is NVIDIA's must be known from elsewhere. Throws PolicyError for a call to fix.
 */
export async function judgeNrasAnswer(
  { answer, keySet }: NrasEvidence,
  policy: NrasPolicy,
  at: Date,
): Promise<NrasJudgement> {
  const { nonce, issuer } = resolvePolicy(policy)
  const atMs = at.getTime()
  if (Number.isNaN(atMs)) throw new PolicyError('expected a valid time as Date')
  const list = createProviderChecks<NrasCheckName>()
  const texts = await list.make('answer', () => {
    const parsed = parseAnswer(answer)
    return established({ ...parsed, keys: parseTokenKeys(keySet) })
  })
  const tokens = texts && (await list.make('tokens', () => readTokens(texts, { issuer, atMs })))
  if (tokens !== null) {
    const { overall, devices } = tokens
    const digests = await list.make('overall token', () => established(digestsOf(overall, devices)))
    if (digests !== null) await list.make('device tokens', () => checkDigests(devices, digests))
    await list.make('token nonce', () => checkNonces([overall, ...devices.values()], nonce))
    await list.make('overall result', () => checkOverall(overall))
    await list.make('device results', () => checkResults(devices))
  }
  const made = new Set(list.checks.map(({ name }) => name))
  for (const name of NRAS_CHECKS)
    if (!made.has(name)) await list.make(name, () => ({ notChecked: 'an earlier check failed' }))
  const hasFailed = list.checks.some(({ outcome }) => outcome === 'failed')
  const facts =
    tokens === null || hasFailed
      ? null
      : { devices: [...tokens.devices].map(describeDevice), verifiedAtMs: atMs }
  return { facts, checks: list.checks }
}

function resolvePolicy(given: NrasPolicy): Required<NrasPolicy> {
  if (!hasOwnMembersAlone(given)) throw new PolicyError('expected the policy as an object')
  const { nonce, issuer = NRAS_ISSUER, ...rest } = ownMembers(given)
  if (Object.keys(rest).length > 0) throw new PolicyError('expected nonce and issuer alone')
  if (!isBytes(nonce, { bytesMin: 32, bytesMax: 32 }))
    throw new PolicyError('expected the nonce as Uint8Array of 32 bytes')
  if (typeof issuer !== 'string' || issuer === '') throw new PolicyError('expected an issuer')
  return { nonce, issuer }
}

type AnswerTexts = { readonly overall: string; readonly devices: ReadonlyMap<string, string> }
type AnswerTokens = { readonly overall: Token; readonly devices: ReadonlyMap<string, Token> }

/** Most devices in an answer. */
const DEVICES_MAX = 24

/** Rule 9. */
function parseAnswer(bytes: Uint8Array): AnswerTexts {
  const { arrayOf, objectOf, textOf, invalid } = formsOf('answer_malformed')
  try {
    const [pair, tokens] = arrayOf(parseExactJson(bytes), 'the answer', { min: 2, max: 2 })
    const [kind, overall] = arrayOf(pair, 'the first item', { min: 2, max: 2 })
    if (kind !== 'JWT') throw invalid('the first item', 'JWT and a token')
    const entries = Object.entries(objectOf(tokens, 'the second item'))
    if (entries.length < 1 || entries.length > DEVICES_MAX)
      throw invalid('the second item', `the tokens of 1 to ${DEVICES_MAX} devices`)
    return {
      overall: textOf(overall, 'the overall token'),
      devices: new Map(entries.map(([name, json]) => [name, textOf(json, 'each device')])),
    }
  } catch (fault) {
    if (!(fault instanceof FormatError)) throw fault
    throw refuseGpu('answer_malformed', fault.message)
  }
}

/** Rule 10: every token, the overall one and each device's, is signed, by the issuer, in its time. */
async function readTokens(
  { overall, devices, keys }: AnswerTexts & { readonly keys: TokenKeys },
  { issuer, atMs }: { readonly issuer: string; readonly atMs: number },
): Promise<Established<AnswerTokens>> {
  const read = async (text: string): Promise<Token> => {
    const token = decodeToken(text)
    await verifyToken(token, keys)
    const { iss } = token.claims
    if (iss !== issuer) throw refuseGpu('token_issuer', `expected a token of ${issuer}`)
    if (atMs < secondsOf(token, 'nbf') * 1000)
      throw refuseGpu('token_not_yet_valid', 'expected a token that is valid already')
    if (atMs >= secondsOf(token, 'exp') * 1000)
      throw refuseGpu('token_expired', 'expected a token that has not expired')
    return token
  }
  const first = await read(overall)
  const others = new Map<string, Token>()
  for (const [name, text] of devices) others.set(name, await read(text))
  return established({ overall: first, devices: others }, `by ${first.kid}`)
}

function secondsOf({ claims }: Token, name: 'nbf' | 'exp'): number {
  const value = memberOf(claims, name)
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value
  throw refuseGpu('token_malformed', `expected ${name} in seconds`)
}

/** Rule 11: the overall token names exactly the devices, each with a SHA-256. */
function digestsOf(
  { claims }: Token,
  devices: ReadonlyMap<string, Token>,
): ReadonlyMap<string, string> {
  const submodules = memberOf(claims, 'submods')
  const found = new Map<string, string>()
  for (const [name, value] of isJsonObject(submodules) ? Object.entries(submodules) : []) {
    const digest = digestIn(value)
    if (digest !== null && devices.has(name)) found.set(name, digest)
    else throw refuseGpu('token_submodules', 'expected a digest of the token of each device')
  }
  if (found.size !== devices.size)
    throw refuseGpu('token_submodules', 'expected a digest of the token of each device')
  return found
}

/** `["DIGEST", ["SHA-256", hex]]` */
function digestIn(value: Json): string | null {
  const [kind, pair] = isJsonArray(value) && value.length === 2 ? value : []
  const [hash, digest] = isJsonArray(pair) && pair.length === 2 ? pair : []
  return kind === 'DIGEST' && hash === 'SHA-256' && typeof digest === 'string' ? digest : null
}

/** Rule 12. */
function checkDigests(
  devices: ReadonlyMap<string, Token>,
  digests: ReadonlyMap<string, string>,
): Established<true> {
  for (const [name, { text }] of devices)
    if (encodeHex(sha256(encodeUtf8(text))) !== digests.get(name))
      throw refuseGpu('token_digest_mismatch', "expected each device's token to have its digest")
  return established(true, [...devices.keys()].join(', '))
}

/** Rule 13. */
function checkNonces(tokens: readonly Token[], nonce: Uint8Array): Established<true> {
  const expected = encodeHex(nonce)
  if (tokens.every(({ claims }) => memberOf(claims, 'eat_nonce') === expected))
    return established(true, expected)
  throw refuseGpu('token_nonce_mismatch', 'expected tokens for the nonce that was asked for')
}

/** Rule 14. */
function checkOverall({ claims }: Token): Established<true> {
  if (memberOf(claims, 'x-nvidia-overall-att-result') === true) return established(true)
  throw refuseGpu('overall_result_false', 'expected the overall result true')
}

/** Rule 15: what each device's token must state. */
const RESULTS = { measres: 'success', secboot: true, dbgstat: 'disabled' } as const

function checkResults(devices: ReadonlyMap<string, Token>): Established<true> {
  for (const { claims } of devices.values())
    for (const [name, expected] of Object.entries(RESULTS))
      if (memberOf(claims, name) !== expected)
        throw refuseGpu('device_result_failed', `expected ${name} to be ${expected}`)
  return established(true)
}

function describeDevice([name, { claims }]: readonly [string, Token]): NrasDevice {
  const textOf = (claim: string) => {
    const value = memberOf(claims, claim)
    return typeof value === 'string' ? value : null
  }
  return {
    name,
    hardware: textOf('hwmodel'),
    driver: textOf('x-nvidia-gpu-driver-version'),
    vbios: textOf('x-nvidia-gpu-vbios-version'),
  }
}
