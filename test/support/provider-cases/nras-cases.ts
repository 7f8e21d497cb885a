import type { NvidiaCode, NvidiaRule } from '#attestation/providers/nvidia/gpu-rules.ts'
import type { NrasPolicy } from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { generateKey } from '../nitro-builder/certificate-builder.ts'
import {
  buildNras,
  NRAS_AT,
  NRAS_NONCE,
  type NrasChange,
} from '../provider-builder/nras-builder.ts'

type NrasCase = {
  readonly name: string
  readonly change?: NrasChange
  readonly policy?: Partial<NrasPolicy>
  /** Default NRAS_AT. */
  readonly at?: Date
}

/** An answer that breaks one rule, and the code of its refusal. */
export type NrasRefusal = NrasCase & { readonly code: NvidiaCode }

/** An answer at the edge of a rule that is still accepted. */
export type NrasAcceptance = NrasCase & { readonly rule: NvidiaRule }

/** The evidence and the policy of a case. */
export function nrasCaseOf({ change, policy }: NrasCase) {
  const built = buildNras(change)
  return { evidence: built.evidence, policy: { ...built.policy, ...policy } }
}

const minutes = (count: number, ms = 0) => new Date(NRAS_AT.getTime() + 60_000 * count + ms)
const stranger = generateKey()
const unsigned = (token: string) => {
  const header = Buffer.from('{"alg":"none"}').toString('base64url')
  return `${header}.${token.split('.')[1]}.`
}

export const nrasAcceptances: readonly NrasAcceptance[] = [
  { rule: 9, name: 'the answer for one GPU' },
  { rule: 10, name: 'the first millisecond of a token', at: minutes(-30) },
  { rule: 10, name: 'the last millisecond of a token', at: minutes(30, -1) },
  {
    rule: 10,
    name: 'a key set with keys of other kinds',
    change: { keySet: ({ keys }) => ({ keys: [...keys, { kty: 'EC', crv: 'P-256' }] }) },
  },
  { rule: 11, name: 'digests of exactly the devices' },
  { rule: 12, name: 'the digest of the token of a device' },
  { rule: 13, name: 'the nonce that was asked for' },
  { rule: 14, name: 'the overall result true' },
  { rule: 15, name: 'a device with another model', change: { device: { hwmodel: 'GB100' } } },
]

export const nrasRefusals: readonly NrasRefusal[] = [
  { code: 'answer_malformed', name: 'no JSON', change: { answer: () => '[' } },
  {
    code: 'answer_malformed',
    name: 'another kind of token',
    change: { answer: ([[, token], rest]) => [['CWT', token], rest] },
  },
  { code: 'answer_malformed', name: 'a third item', change: { answer: (json) => [...json, {}] } },
  { code: 'answer_malformed', name: 'no device', change: { answer: ([pair]) => [pair, {}] } },
  {
    code: 'answer_malformed',
    name: 'a device twice',
    change: { answer: (json) => JSON.stringify(json).replace('{"GPU-0"', '{"GPU-0":"","GPU-0"') },
  },
  { code: 'key_set_malformed', name: 'no JSON', change: { keySet: () => '{' } },
  { code: 'key_set_malformed', name: 'no keys', change: { keySet: () => ({}) } },
  {
    code: 'key_set_malformed',
    name: 'a key id twice',
    change: { keySet: ({ keys }) => ({ keys: [...keys, ...keys] }) },
  },
  {
    code: 'key_set_malformed',
    name: 'a point on no curve',
    change: { keySet: ({ keys }) => ({ keys: keys.map((key) => ({ ...key, y: key.x })) }) },
  },
  {
    code: 'key_set_malformed',
    name: 'a padded coordinate',
    change: { keySet: ({ keys }) => ({ keys: keys.map((key) => ({ ...key, y: `${key.y}=` })) }) },
  },
  {
    code: 'token_malformed',
    name: 'two parts',
    change: { overallToken: (token) => token.split('.').slice(0, 2).join('.').replace('.', '') },
  },
  { code: 'token_malformed', name: 'four parts', change: { overallToken: (token) => `${token}.` } },
  {
    code: 'token_malformed',
    name: 'padding in the signature',
    change: { overallToken: (token) => `${token}=` },
  },
  {
    code: 'token_malformed',
    name: 'a header that makes demands',
    change: { header: { crit: ['exp'] } },
  },
  {
    code: 'token_malformed',
    name: 'a header without key id',
    change: { header: { kid: undefined } },
  },
  { code: 'token_malformed', name: 'no end', change: { overall: { exp: undefined } } },
  {
    code: 'token_malformed',
    name: 'an end that is a text',
    change: { device: { exp: '9999999999' } },
  },
  { code: 'token_algorithm', name: 'no signature, alg none', change: { overallToken: unsigned } },
  {
    code: 'token_algorithm',
    name: 'a device token with alg none',
    change: { deviceToken: unsigned },
  },
  { code: 'token_algorithm', name: 'HS384', change: { header: { alg: 'HS384' } } },
  {
    code: 'token_key_unknown',
    name: 'a key that is not in the set',
    change: { header: { kid: 'other' } },
  },
  {
    code: 'token_key_unknown',
    name: 'a key of another kind',
    change: { header: { kid: 'another' } },
  },
  {
    code: 'token_signature_invalid',
    name: 'an overall token by another key',
    change: { key: stranger },
  },
  {
    code: 'token_signature_invalid',
    name: 'a device token by another key',
    change: { deviceKey: stranger },
  },
  {
    code: 'token_issuer',
    name: 'another issuer',
    change: { overall: { iss: 'https://nras.example' } },
  },
  {
    code: 'token_issuer',
    name: 'another issuer of the device token',
    change: { device: { iss: 'https://nras.example' } },
  },
  {
    code: 'token_issuer',
    name: 'an issuer that the policy does not name',
    policy: { issuer: 'https://nras.example' },
  },
  { code: 'token_not_yet_valid', name: 'a millisecond early', at: minutes(-30, -1) },
  { code: 'token_expired', name: 'after an hour', at: minutes(30) },
  { code: 'token_submodules', name: 'no digests', change: { overall: { submods: undefined } } },
  {
    code: 'token_submodules',
    name: 'the digest of another device too',
    change: {
      overall: {
        submods: { 'GPU-0': ['DIGEST', ['SHA-256', 'aa']], 'GPU-1': ['DIGEST', ['SHA-256', 'aa']] },
      },
    },
  },
  {
    code: 'token_submodules',
    name: 'the digest of another device',
    change: { overall: { submods: { 'GPU-1': ['DIGEST', ['SHA-256', 'aa']] } } },
  },
  {
    code: 'token_submodules',
    name: 'a digest by another hash',
    change: { overall: { submods: { 'GPU-0': ['DIGEST', ['MD5', 'aa']] } } },
  },
  {
    code: 'token_digest_mismatch',
    name: 'a genuine token of another answer',
    change: { deviceToken: () => tokenOf(buildNras({ device: { hwmodel: 'GB100' } })) },
  },
  { code: 'token_nonce_mismatch', name: 'another nonce', policy: { nonce: NRAS_NONCE.with(0, 0) } },
  {
    code: 'token_nonce_mismatch',
    name: 'another nonce in the device token',
    change: { device: { eat_nonce: '00'.repeat(32) } },
  },
  {
    code: 'overall_result_false',
    name: 'false',
    change: { overall: { 'x-nvidia-overall-att-result': false } },
  },
  {
    code: 'overall_result_false',
    name: 'the text true',
    change: { overall: { 'x-nvidia-overall-att-result': 'true' } },
  },
  {
    code: 'device_result_failed',
    name: 'measurements that differ',
    change: { device: { measres: 'fail' } },
  },
  { code: 'device_result_failed', name: 'no secure boot', change: { device: { secboot: false } } },
  { code: 'device_result_failed', name: 'debugging', change: { device: { dbgstat: 'enabled' } } },
  {
    code: 'device_result_failed',
    name: 'no word about debugging',
    change: { device: { dbgstat: undefined } },
  },
]

/** The token of the device in an answer. */
function tokenOf({ evidence }: ReturnType<typeof buildNras>): string {
  const [, devices]: [unknown, Record<string, string>] = JSON.parse(
    new TextDecoder().decode(evidence.answer),
  )
  return devices['GPU-0'] ?? ''
}
