import type { RevocationList } from '#attestation/nitro/check-revocation.ts'
import {
  authorityConstraints,
  buildCertificate,
  extension,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  nameOf,
  publicKeyInfo,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'

import { integer } from '../nitro-builder/der-encoder.ts'
import { buildChain, keyAt, MADE_AT, partsOf } from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'
import {
  altered,
  authorityUsage,
  bundled,
  documentOf,
  leafUsage,
  trusting,
} from './chain-documents.ts'

const { cabundle } = standardChain
const { digitalSignature, keyCertSign } = KEY_USAGE_BITS
const rootWith = (...extensions: readonly Uint8Array[]) =>
  buildChain({ level: 0, parts: { extensions } })
const usageless = rootWith(authorityConstraints(null))
const shallow = rootWith(authorityConstraints(2), authorityUsage)
const deepEnough = rootWith(authorityConstraints(3), authorityUsage)
const seconds = (count: number) => new Date(MADE_AT.getTime() + 1000 * count)
const validFor = (level: number, from: Date, to: Date) =>
  buildChain({ level, parts: { validity: validityOf(from, to) } })
const futureRoot = validFor(0, seconds(61), seconds(1000))
const pastRoot = validFor(0, seconds(-1000), seconds(-1))
const leafIssuer = partsOf(4).issuer

/** Rules 17 to 19. */
export const constraintAcceptances: readonly Acceptance[] = [
  {
    rule: 17,
    name: 'path lengths that are just enough',
    document: documentOf(deepEnough),
    policy: trusting(deepEnough),
  },
  {
    rule: 17,
    name: 'a leaf without basicConstraints',
    document: altered({ level: 4, parts: { extensions: [leafUsage] } }),
  },
  {
    rule: 17,
    name: 'a keyUsage of a CA that is not critical',
    document: altered({
      level: 3,
      parts: { extensions: [authorityConstraints(0), keyUsage(keyCertSign, false)] },
    }),
  },
  {
    rule: 18,
    name: 'the first second of a certificate',
    document: altered({ level: 2, parts: { validity: validityOf(MADE_AT, seconds(1)) } }),
  },
  {
    rule: 18,
    name: 'the last second of a certificate',
    document: altered({ level: 4, parts: { validity: validityOf(seconds(-1), MADE_AT) } }),
  },
  {
    rule: 18,
    name: 'an expired document at its own time, in historical mode',
    document: buildDocument(),
    policy: { mode: 'historical' },
    at: seconds(10 * 365 * 86_400),
  },
  {
    rule: 18,
    name: 'an intermediate that begins the whole skew after the document, in current mode',
    document: altered({ level: 1, parts: { validity: validityOf(seconds(60), seconds(1000)) } }),
  },
  {
    rule: 19,
    name: 'another serial of the same issuer',
    document: buildDocument(),
    policy: { revoked: [{ issuer: leafIssuer, serial: Uint8Array.of(0x70, 0x05) }] },
  },
  {
    rule: 19,
    name: 'the same serial of another issuer',
    document: buildDocument(),
    policy: { revoked: [{ issuer: nameOf('other'), serial: Uint8Array.of(0x70, 0x04) }] },
  },
  {
    rule: 19,
    name: 'lists of two issuers, in the first and the last millisecond of them',
    document: buildDocument(),
    policy: {
      revocationLists: [
        listOf(0, { thisUpdateMs: MADE_AT.getTime() }),
        listOf(1, { nextUpdateMs: MADE_AT.getTime() }),
      ],
    },
  },
  {
    rule: 19,
    name: 'in historical mode, a list made after the document, while the certificate lived',
    document: buildDocument(),
    policy: {
      mode: 'historical',
      revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 2 * 86_400_000 })],
    },
  },
]

export const constraintRefusals: readonly Refusal[] = [
  {
    code: 'ca_basic_constraints',
    name: 'none',
    document: altered({ level: 3, parts: { extensions: [keyUsage(keyCertSign)] } }),
  },
  {
    code: 'ca_basic_constraints',
    name: 'not critical',
    document: altered({
      level: 2,
      parts: { extensions: [authorityConstraints(1, false), authorityUsage] },
    }),
  },
  {
    code: 'ca_basic_constraints',
    name: 'no cA',
    document: altered({ level: 1, parts: { extensions: [leafConstraints(), authorityUsage] } }),
  },
  {
    code: 'ca_basic_constraints',
    name: 'no extensions at all',
    document: altered({ level: 1, parts: { extensions: null } }),
  },
  {
    code: 'ca_key_usage',
    name: 'no keyCertSign',
    document: altered({
      level: 3,
      parts: { extensions: [authorityConstraints(0), keyUsage(digitalSignature)] },
    }),
  },
  {
    code: 'ca_key_usage',
    name: 'no keyUsage in the root',
    document: documentOf(usageless),
    policy: trusting(usageless),
  },
  {
    code: 'path_length_exceeded',
    name: 'a root that allows two',
    document: documentOf(shallow),
    policy: trusting(shallow),
  },
  {
    code: 'path_length_exceeded',
    name: 'a regional certificate that allows none',
    document: altered({
      level: 1,
      parts: { extensions: [authorityConstraints(0), authorityUsage] },
    }),
  },
  {
    code: 'path_length_exceeded',
    name: 'a leaf that certifies another leaf',
    document: bundled([...cabundle, deeperAuthority()]),
  },
  {
    code: 'leaf_is_ca',
    name: 'cA',
    document: altered({
      level: 4,
      parts: { extensions: [authorityConstraints(0), authorityUsage] },
    }),
  },
  {
    code: 'leaf_key_usage',
    name: 'no digitalSignature',
    document: altered({
      level: 4,
      parts: { extensions: [leafConstraints(), keyUsage(KEY_USAGE_BITS.nonRepudiation)] },
    }),
  },
  {
    code: 'leaf_key_usage',
    name: 'no keyUsage',
    document: altered({ level: 4, parts: { extensions: [leafConstraints()] } }),
  },
  {
    code: 'leaf_key_usage',
    name: 'no extensions at all',
    document: altered({ level: 4, parts: { extensions: null } }),
  },
  ...[0, 1, 2, 3, 4].flatMap((level): Refusal[] => {
    const early = level === 0 ? futureRoot : validFor(level, seconds(61), seconds(1000))
    const late = level === 0 ? pastRoot : validFor(level, seconds(-1000), seconds(-1))
    return [
      {
        code: 'certificate_not_yet_valid',
        name: `level ${level}, a second earlier than a clock may be behind`,
        document: documentOf(early),
        policy: trusting(early),
      },
      {
        code: 'certificate_expired',
        name: `level ${level}, one second late`,
        document: documentOf(late),
        policy: trusting(late),
      },
    ]
  }),
  {
    code: 'certificate_not_yet_valid',
    name: 'an intermediate that begins a second after the document, in historical mode',
    document: altered({ level: 1, parts: { validity: validityOf(seconds(1), seconds(1000)) } }),
    policy: { mode: 'historical' },
  },
  {
    code: 'certificate_expired',
    name: 'milliseconds after the last second',
    document: altered({ level: 4, parts: { validity: validityOf(seconds(-1), MADE_AT) } }),
    at: new Date(MADE_AT.getTime() + 1),
  },
  {
    code: 'certificate_expired',
    name: 'an intermediate, at the time of the document, in historical mode',
    document: altered({ level: 3, parts: { validity: validityOf(seconds(-9), seconds(-1)) } }),
    policy: { mode: 'historical' },
  },
  {
    code: 'certificate_revoked',
    name: 'the leaf',
    document: buildDocument(),
    policy: { revoked: [{ issuer: leafIssuer, serial: Uint8Array.of(0x70, 0x04) }] },
  },
  {
    code: 'certificate_revoked',
    name: 'an intermediate, its serial padded',
    document: buildDocument(),
    policy: { revoked: [{ issuer: partsOf(1).issuer, serial: Uint8Array.of(0, 0, 0x70, 0x01) }] },
  },
  {
    code: 'certificate_revoked',
    name: 'an intermediate, by a list of its issuer',
    document: buildDocument(),
    policy: { revocationLists: [listOf(1, { serials: [Uint8Array.of(0, 0x70, 0x02)] })] },
  },
  {
    code: 'revocation_list_foreign',
    name: 'a list of another issuer',
    document: buildDocument(),
    policy: { revocationLists: [listOf(1, { issuer: nameOf('other') })] },
  },
  {
    code: 'revocation_list_foreign',
    name: 'a list of the issuer by name, with another key',
    document: buildDocument(),
    policy: { revocationLists: [listOf(1, { issuerKey: listOf(2).issuerKey })] },
  },
  {
    code: 'revocation_list_not_yet_valid',
    name: 'a list that begins a millisecond later',
    document: buildDocument(),
    policy: { revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 1 })] },
  },
  {
    code: 'revocation_list_not_yet_valid',
    name: 'in historical mode, a list made after the certificate ended',
    document: buildDocument(),
    policy: {
      mode: 'historical',
      revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 4 * 86_400_000 })],
    },
  },
  {
    code: 'revocation_list_expired',
    name: 'a list that ended a millisecond ago',
    document: buildDocument(),
    policy: { revocationLists: [listOf(1, { nextUpdateMs: MADE_AT.getTime() - 1 })] },
  },
  {
    code: 'certificate_revoked',
    name: 'the root',
    document: buildDocument(),
    policy: { revoked: [{ issuer: partsOf(0).issuer, serial: Uint8Array.of(0x70, 0x00) }] },
  },
]

/**
 * A CA certificate between the instance and the leaf. The instance made it, but may make leaves
 * only.
 */
function deeperAuthority(): Uint8Array<ArrayBuffer> {
  return buildCertificate({
    ...partsOf(4),
    subject: leafIssuer,
    publicKey: publicKeyInfo(keyAt(3)),
    extensions: [
      authorityConstraints(0),
      authorityUsage,
      extension('1.3.6.1.4.1.99999.1', { critical: false, value: integer(1) }),
    ],
  })
}

/** An empty list by the CA certificate at a level, in force at MADE_AT. */
function listOf(level: number, changed: Partial<RevocationList> = {}): RevocationList {
  return {
    issuer: partsOf(level).subject,
    issuerKey: new Uint8Array(publicKeyInfo(keyAt(level)).subarray(-97)),
    serials: [],
    thisUpdateMs: MADE_AT.getTime() - 3_600_000,
    nextUpdateMs: MADE_AT.getTime() + 86_400_000 * 7,
    ...changed,
  }
}
