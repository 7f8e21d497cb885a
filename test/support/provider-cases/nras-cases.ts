import type { NvidiaCode, NvidiaRule } from '#attestation/providers/nvidia/gpu-rules.ts'
import type { NrasPolicy } from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { casesOf } from '../case-table.ts'
import { generateKey } from '../nitro-builder/certificate-builder.ts'
import {
  buildNras,
  NRAS_AT,
  NRAS_NONCE,
  type NrasChange,
} from '../provider-builder/nras-builder.ts'

type NrasCase = NrasChange & {
  readonly policy?: Partial<NrasPolicy>
  /** Default NRAS_AT. */
  readonly at?: Date
}

/** The evidence and the policy of a case. */
export function nrasCaseOf({ policy, ...change }: NrasCase) {
  const built = buildNras(change)
  return { evidence: built.evidence, policy: { ...built.policy, ...policy } }
}

const minutes = (count: number, ms = 0) => new Date(NRAS_AT.getTime() + 60_000 * count + ms)
const stranger = generateKey()
const unsigned = (token: string) => {
  const header = Buffer.from('{"alg":"none"}').toString('base64url')
  return `${header}.${token.split('.')[1]}.`
}

export const nrasAcceptances = casesOf<'rule', NvidiaRule, NrasCase>('rule', {
  9: { 'the answer for one GPU': {} },
  10: {
    'the first millisecond of a token': { at: minutes(-30) },
    'the last millisecond of a token': { at: minutes(30, -1) },
    'a key set with keys of other kinds': {
      keySet: ({ keys }) => ({ keys: [...keys, { kty: 'EC', crv: 'P-256' }] }),
    },
  },
  11: { 'digests of exactly the devices': {} },
  12: { 'the digest of the token of a device': {} },
  13: { 'the nonce that was asked for': {} },
  14: { 'the overall result true': {} },
  15: { 'a device with another model': { device: { hwmodel: 'GB100' } } },
})

export const nrasRefusals = casesOf<'code', NvidiaCode, NrasCase>('code', {
  answer_malformed: {
    'no JSON': { answer: () => '[' },
    'another kind of token': { answer: ([[, token], rest]) => [['CWT', token], rest] },
    'a third item': { answer: (json) => [...json, {}] },
    'no device': { answer: ([pair]) => [pair, {}] },
    'a device twice': {
      answer: (json) => JSON.stringify(json).replace('{"GPU-0"', '{"GPU-0":"","GPU-0"'),
    },
  },
  key_set_malformed: {
    'no JSON': { keySet: () => '{' },
    'no keys': { keySet: () => ({}) },
    'a key id twice': { keySet: ({ keys }) => ({ keys: [...keys, ...keys] }) },
    'a point on no curve': {
      keySet: ({ keys }) => ({ keys: keys.map((key) => ({ ...key, y: key.x })) }),
    },
    'a padded coordinate': {
      keySet: ({ keys }) => ({ keys: keys.map((key) => ({ ...key, y: `${key.y}=` })) }),
    },
  },
  token_malformed: {
    'two parts': {
      overallToken: (token) => token.split('.').slice(0, 2).join('.').replace('.', ''),
    },
    'four parts': { overallToken: (token) => `${token}.` },
    'padding in the signature': { overallToken: (token) => `${token}=` },
    'a header that makes demands': { header: { crit: ['exp'] } },
    'a header without key id': { header: { kid: undefined } },
    'no end': { overall: { exp: undefined } },
    'an end that is a text': { device: { exp: '9999999999' } },
  },
  token_algorithm: {
    'no signature, alg none': { overallToken: unsigned },
    'a device token with alg none': { deviceToken: unsigned },
    HS384: { header: { alg: 'HS384' } },
  },
  token_key_unknown: {
    'a key that is not in the set': { header: { kid: 'other' } },
    'a key of another kind': { header: { kid: 'another' } },
  },
  token_signature_invalid: {
    'an overall token by another key': { key: stranger },
    'a device token by another key': { deviceKey: stranger },
  },
  token_issuer: {
    'another issuer': { overall: { iss: 'https://nras.example' } },
    'another issuer of the device token': { device: { iss: 'https://nras.example' } },
    'an issuer that the policy does not name': { policy: { issuer: 'https://nras.example' } },
  },
  token_not_yet_valid: { 'a millisecond early': { at: minutes(-30, -1) } },
  token_expired: { 'after an hour': { at: minutes(30) } },
  token_submodules: {
    'no digests': { overall: { submods: undefined } },
    'the digest of another device too': {
      overall: {
        submods: {
          'GPU-0': ['DIGEST', ['SHA-256', 'aa']],
          'GPU-1': ['DIGEST', ['SHA-256', 'aa']],
        },
      },
    },
    'the digest of another device': {
      overall: { submods: { 'GPU-1': ['DIGEST', ['SHA-256', 'aa']] } },
    },
    'a digest by another hash': { overall: { submods: { 'GPU-0': ['DIGEST', ['MD5', 'aa']] } } },
  },
  token_digest_mismatch: {
    'a genuine token of another answer': {
      deviceToken: () => tokenOf(buildNras({ device: { hwmodel: 'GB100' } })),
    },
  },
  token_nonce_mismatch: {
    'another nonce': { policy: { nonce: NRAS_NONCE.with(0, 0) } },
    'another nonce in the device token': { device: { eat_nonce: '00'.repeat(32) } },
  },
  overall_result_false: {
    false: { overall: { 'x-nvidia-overall-att-result': false } },
    'the text true': { overall: { 'x-nvidia-overall-att-result': 'true' } },
  },
  device_result_failed: {
    'measurements that differ': { device: { measres: 'fail' } },
    'no secure boot': { device: { secboot: false } },
    debugging: { device: { dbgstat: 'enabled' } },
    'no word about debugging': { device: { dbgstat: undefined } },
  },
})

/** The token of the device in an answer. */
function tokenOf({ evidence }: ReturnType<typeof buildNras>): string {
  const [, devices]: [unknown, Record<string, string>] = JSON.parse(
    new TextDecoder().decode(evidence.answer),
  )
  return devices['GPU-0'] ?? ''
}
