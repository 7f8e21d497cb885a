import { decodeBase64Url, encodeUtf8 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberOf } from '../../json/value.ts'
import { importPoint, isPointOnCurve, P384, verifyEcdsa } from '../../nitro/ecdsa.ts'
import { orRefuse } from '../provider-error.ts'
import { refuseGpu } from './gpu-rules.ts'

/** Points on P-384 by key id (RFC 7517). */
export type TokenKeys = ReadonlyMap<string, Uint8Array<ArrayBuffer>>

/** Real tokens have about 3,000 characters. */
const TOKEN_CHARACTERS_MAX = 65_536
const COORDINATE_BYTES = P384.coordinateBytes

/**
 * Parses the attacker-controlled JSON of a key set. Ignores keys on other curves than P-384. Throws
 * ProviderEvidenceError `key_set_malformed`, also if two keys have the same id.
 */
export function parseTokenKeys(bytes: Uint8Array): TokenKeys {
  const { objectOf, arrayOf, textOf } = formsOf('key_set_malformed')
  return orRefuse(refuseGpu, 'key_set_malformed', () => {
    const keys = new Map<string, Uint8Array<ArrayBuffer>>()
    const set = objectOf(parseExactJson(bytes), 'the key set')
    for (const json of arrayOf(memberOf(set, 'keys'), 'keys')) {
      const key = objectOf(json, 'each key')
      if (memberOf(key, 'kty') !== 'EC' || memberOf(key, 'crv') !== P384.name) continue
      const kid = textOf(memberOf(key, 'kid'), 'kid')
      const [x, y] = ['x', 'y'].map((name) => decodeBase64Url(textOf(memberOf(key, name), name)))
      const point = Uint8Array.from([4, ...(x ?? []), ...(y ?? [])])
      if (keys.has(kid) || x?.length !== COORDINATE_BYTES || !isPointOnCurve(point, P384))
        throw new FormatError('key_set_malformed', 'expected points on P-384, each with its own id')
      keys.set(kid, point)
    }
    return keys
  })
}

/** RFC 7519, RFC 7515 section 7.1. Nothing is verified. */
export type Token = {
  /** The whole token as received, which is ASCII. */
  readonly text: string
  readonly kid: string
  readonly claims: JsonObject
  readonly signed: Uint8Array<ArrayBuffer>
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Decodes an attacker-controlled token (rule 10). Refuses any algorithm except ES384, and a header
 * with critical extensions (`crit`). Throws ProviderEvidenceError.
 */
export function decodeToken(text: string): Token {
  const [header = '', payload = '', signature = '', ...rest] = text.split('.')
  if (text.length > TOKEN_CHARACTERS_MAX || rest.length > 0 || payload === '')
    throw refuseGpu('token_malformed', 'expected a token of header, claims and signature')
  const { alg, kid, crit } = objectIn(header)
  if (alg !== 'ES384') throw refuseGpu('token_algorithm', 'expected a token signed by ES384')
  if (typeof kid !== 'string' || crit !== undefined)
    throw refuseGpu('token_malformed', 'expected a header with a key id, and without crit')
  return {
    text,
    kid,
    claims: objectIn(payload),
    signed: new Uint8Array(encodeUtf8(`${header}.${payload}`)),
    signature: orRefuse(refuseGpu, 'token_malformed', () => decodeBase64Url(signature)),
  }
}

/** Throws ProviderEvidenceError unless the signature is valid for the key that `kid` names. */
export async function verifyToken(token: Token, keys: TokenKeys): Promise<void> {
  const point = keys.get(token.kid)
  if (point === undefined)
    throw refuseGpu('token_key_unknown', 'expected a token by a key of the stored key set')
  const key = await importPoint(point, P384)
  const { signed: data, signature } = token
  if (key === null || !(await verifyEcdsa({ key, signature, data })))
    throw refuseGpu('token_signature_invalid', 'expected a token that its key signed')
}

function objectIn(part: string): JsonObject {
  return orRefuse(refuseGpu, 'token_malformed', () => {
    const json = parseExactJson(decodeBase64Url(part))
    if (isJsonObject(json)) return json
    throw new FormatError('token_malformed', 'expected a JSON object in the token')
  })
}
