import { encodeHex, encodeUtf8, sha256 } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { isJsonArray, isJsonObject, type Json, memberOf } from '../../json/value.ts'
import { demand, isBytesOf, judgedAt, optionsOf } from '../policy-options.ts'
import {
  blockedBy,
  createProviderChecks,
  type Established,
  established,
  type ProviderCheck,
} from '../provider-checks.ts'
import { orRefuse } from '../provider-error.ts'
import { NRAS_CHECKS, type NrasCheckName, refuseGpu } from './gpu-rules.ts'
import { decodeToken, parseTokenKeys, type Token, type TokenKeys, verifyToken } from './token.ts'

/** Both bodies are attacker-controlled. */
export type NrasEvidence = {
  /** A JSON array of two items: `["JWT", overall]`, and an object with one token per device. */
  readonly answer: Uint8Array
  /** The service's `.well-known/jwks.json` at the time of the answer. */
  readonly keySet: Uint8Array
}

export type NrasPolicy = {
  /** The nonce that the caller chose, 32 bytes. */
  readonly nonce: Uint8Array
  /** Default NRAS_ISSUER. */
  readonly issuer?: string
}

export const NRAS_ISSUER = 'https://nras.attestation.nvidia.com'

type NrasDevice = {
  /** Such as `GPU-0`. */
  readonly name: string
  readonly hardware: string | null
  readonly driver: string | null
  readonly vbios: string | null
}

/** `devices` is null unless the check "device tokens" passed. */
type NrasJudgement = {
  readonly devices: readonly NrasDevice[] | null
  readonly checks: readonly ProviderCheck<NrasCheckName>[]
}

/**
 * Judges an attacker-controlled answer of NVIDIA's remote attestation service under `policy` at the
 * time `at`, by rules 9 to 15 of rules.md. Accept it only if `requireChecks(checks)` returns.
 *
 * It proves what the holder of a key in the key set states. It does NOT prove that the key set is
 * NVIDIA's. Throws only PolicyError, for a fault in the call.
 *
 * @example
 * const { devices, checks } = await verifyNrasAnswer({ answer, keySet }, { nonce }, at)
 * requireChecks(checks)
 * console.log(devices?.[0]?.hardware) // GH100 A01 GSP BROM
 */
export async function verifyNrasAnswer(
  { answer, keySet }: NrasEvidence,
  policy: NrasPolicy,
  at: Date,
): Promise<NrasJudgement> {
  const { nonce, issuer } = resolvePolicy(policy)
  const atMs = judgedAt(at)
  const areBytes = answer instanceof Uint8Array && keySet instanceof Uint8Array
  demand(areBytes, 'answer and keySet as Uint8Arrays')
  const { make, list } = createProviderChecks(NRAS_CHECKS)
  const texts = await make('answer', () =>
    established({ ...parseAnswer(answer), keys: parseTokenKeys(keySet) }),
  )
  const tokens = await make('tokens', () =>
    texts ? readTokens(texts, { issuer, atMs }) : blockedBy('answer'),
  )
  const blocked = blockedBy('tokens')
  const digests = await make('overall token', () => (tokens ? digestsOf(tokens) : blocked))
  const bound = await make('device tokens', () =>
    tokens && digests ? checkDigests(tokens, digests) : blockedBy('overall token'),
  )
  await make('token nonce', () => (tokens ? checkNonces(tokens, nonce) : blocked))
  await make('overall result', () => (tokens ? checkOverall(tokens) : blocked))
  await make('device results', () => (tokens ? checkResults(tokens) : blocked))
  return { devices: bound && [...bound].map(describeDevice), checks: list() }
}

function resolvePolicy(given: NrasPolicy): Required<NrasPolicy> {
  const { nonce, issuer = NRAS_ISSUER } = optionsOf(given, OPTIONS, 'the policy of NRAS tokens')
  demand(isBytesOf(nonce, 32), 'a nonce of 32 bytes')
  demand(typeof issuer === 'string' && issuer !== '', 'an issuer')
  return { nonce, issuer }
}

const OPTIONS: Readonly<Record<keyof NrasPolicy, true>> = { nonce: true, issuer: true }

type AnswerTexts = { readonly overall: string; readonly devices: ReadonlyMap<string, string> }
type AnswerTokens = { readonly overall: Token; readonly devices: ReadonlyMap<string, Token> }

const DEVICES_MAX = 24

/** Rule 9 of rules.md. */
function parseAnswer(bytes: Uint8Array): AnswerTexts {
  const { arrayOf, objectOf, textOf, invalid } = formsOf('answer_malformed')
  return orRefuse(refuseGpu, 'answer_malformed', () => {
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
  })
}

/** Rule 10: each token is signed, is by the issuer, and is valid at the time. */
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

/** Rule 11: the overall token has a SHA-256 for each device's token, and no others. */
function digestsOf({
  overall: { claims },
  devices,
}: AnswerTokens): Established<ReadonlyMap<string, string>> {
  const submodules = memberOf(claims, 'submods')
  const entries = isJsonObject(submodules) ? Object.entries(submodules) : []
  const digests = new Map(entries.map(([name, value]) => [name, digestIn(value)]))
  if (digests.size !== devices.size || [...devices.keys()].some((name) => !digests.get(name)))
    throw refuseGpu('token_submodules', 'expected a digest of the token of each device')
  return established(digests)
}

/** `["DIGEST", ["SHA-256", hex]]` */
function digestIn(value: Json): string {
  const [kind, pair] = isJsonArray(value) && value.length === 2 ? value : []
  const [hash, digest] = isJsonArray(pair) && pair.length === 2 ? pair : []
  return kind === 'DIGEST' && hash === 'SHA-256' && typeof digest === 'string' ? digest : ''
}

/** Rule 12 of rules.md. */
function checkDigests(
  { devices }: AnswerTokens,
  digests: ReadonlyMap<string, string>,
): Established<AnswerTokens['devices']> {
  for (const [name, { text }] of devices)
    if (encodeHex(sha256(encodeUtf8(text))) !== digests.get(name))
      throw refuseGpu('token_digest_mismatch', "expected each device's token to have its digest")
  return established(devices, [...devices.keys()].join(', '))
}

/** Rule 13 of rules.md. */
function checkNonces({ overall, devices }: AnswerTokens, nonce: Uint8Array): Established<true> {
  const expected = encodeHex(nonce)
  const tokens = [overall, ...devices.values()]
  if (tokens.every(({ claims }) => memberOf(claims, 'eat_nonce') === expected))
    return established(true, expected)
  throw refuseGpu('token_nonce_mismatch', 'expected tokens for the nonce that was asked for')
}

/** Rule 14 of rules.md. */
function checkOverall({ overall: { claims } }: AnswerTokens): Established<true> {
  if (memberOf(claims, 'x-nvidia-overall-att-result') === true) return established(true)
  throw refuseGpu('overall_result_false', 'expected the overall result true')
}

/** Rule 15: what each device's token must state. */
const RESULTS = { measres: 'success', secboot: true, dbgstat: 'disabled' } as const

function checkResults({ devices }: AnswerTokens): Established<true> {
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
