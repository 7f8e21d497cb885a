import { createHash, sign } from 'node:crypto'
import {
  NRAS_ISSUER,
  type NrasEvidence,
  type NrasPolicy,
} from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { generateKey, type KeyPair } from '../nitro-builder/certificate-builder.ts'

/** When the tokens of these tests are judged: half an hour after they were made. */
export const NRAS_AT = new Date('2026-03-04T05:06:00.000Z')
export const NRAS_NONCE = new Uint8Array(32).fill(0x6e)
const MADE_S = NRAS_AT.getTime() / 1000 - 1800

type Claims = Readonly<Record<string, unknown>>

/** Changes to an answer that is otherwise accepted. A member of undefined leaves a claim out. */
export type NrasChange = {
  readonly header?: Claims
  readonly overall?: Claims
  readonly device?: Claims
  /** The key that signs all tokens, the overall one alone, or the device's alone. */
  readonly key?: KeyPair
  readonly deviceKey?: KeyPair
  /** Changes the token of the device after its digest was taken. */
  readonly deviceToken?: (token: string) => string
  readonly overallToken?: (token: string) => string
  /** Changes the JSON of the answer and of the key set. */
  readonly answer?: (json: readonly [readonly [string, string], Claims]) => unknown
  readonly keySet?: (json: { readonly keys: readonly Claims[] }) => unknown
}

export const nrasKey = generateKey()

/** An answer that every check accepts, with changes, and its policy. */
export function buildNras(change: NrasChange = {}): {
  readonly evidence: NrasEvidence
  readonly policy: NrasPolicy
} {
  const { key = nrasKey } = change
  const times = { iss: NRAS_ISSUER, nbf: MADE_S, iat: MADE_S, exp: MADE_S + 3600 }
  const common = { ...times, eat_nonce: Buffer.from(NRAS_NONCE).toString('hex') }
  const header = { kid: 'development', alg: 'ES384', ...change.header }
  const device = writeToken(
    header,
    {
      ...common,
      measres: 'success',
      secboot: true,
      dbgstat: 'disabled',
      hwmodel: 'GH100 A01 GSP BROM',
      'x-nvidia-gpu-driver-version': '590.12',
      ...change.device,
    },
    change.deviceKey ?? key,
  )
  const digest = createHash('sha256').update(device).digest('hex')
  const overall = writeToken(
    header,
    {
      ...common,
      'x-nvidia-overall-att-result': true,
      submods: { 'GPU-0': ['DIGEST', ['SHA-256', digest]] },
      ...change.overall,
    },
    key,
  )
  const answer = [
    ['JWT', change.overallToken?.(overall) ?? overall],
    { 'GPU-0': change.deviceToken?.(device) ?? device },
  ] as const
  const { x, y } = nrasKey.publicKey.export({ format: 'jwk' })
  const keys = [
    { kty: 'RSA', kid: 'another' },
    { kty: 'EC', crv: 'P-384', kid: 'development', x, y },
  ]
  return {
    evidence: {
      answer: bytesOf(change.answer?.(answer) ?? answer),
      keySet: bytesOf(change.keySet?.({ keys }) ?? { keys }),
    },
    policy: { nonce: NRAS_NONCE },
  }
}

/** A token in compact form, signed by ES384. */
export function writeToken(header: Claims, claims: Claims, { privateKey: key }: KeyPair): string {
  const [first, second] = [header, claims].map((part) =>
    Buffer.from(JSON.stringify(part)).toString('base64url'),
  )
  const signed = `${first}.${second}`
  const signature = sign('sha384', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' })
  return `${signed}.${signature.toString('base64url')}`
}

function bytesOf(json: unknown): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(typeof json === 'string' ? json : JSON.stringify(json)))
}
