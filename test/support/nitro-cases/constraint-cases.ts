import type { RevocationList } from '#attestation/nitro/check-revocation.ts'
import { nearly } from '../case-table.ts'
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
import { standardChain } from '../nitro-builder/document-builder.ts'
import { acceptancesOf, type Refusal, refusalsOf, under } from './case.ts'
import { altered, extended } from './certificate-documents.ts'
import {
  authorityUsage,
  bundled,
  documentOf,
  leafUsage,
  trusted,
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
export const constraintAcceptances = acceptancesOf({
  17: {
    'path lengths that are just enough': trusted(deepEnough),
    'a leaf without basicConstraints': extended(4, leafUsage),
    'a keyUsage of a CA that is not critical': extended(
      3,
      authorityConstraints(0),
      keyUsage(keyCertSign, false),
    ),
  },
  18: {
    'the first second of a certificate': altered(2, { validity: validityOf(MADE_AT, seconds(1)) }),
    'the last second of a certificate': altered(4, { validity: validityOf(seconds(-1), MADE_AT) }),
    'an expired document at its own time, in historical mode': under(
      { mode: 'historical' },
      { at: seconds(10 * 365 * 86_400) },
    ),
    'an intermediate that begins the whole skew after the document, in current mode': altered(1, {
      validity: validityOf(seconds(60), seconds(1000)),
    }),
  },
  19: {
    'another serial of the same issuer': under({
      revoked: [{ issuer: leafIssuer, serial: Uint8Array.of(0x70, 0x05) }],
    }),
    'the same serial of another issuer': under({
      revoked: [{ issuer: nearly(leafIssuer), serial: Uint8Array.of(0x70, 0x04) }],
    }),
    'lists of two issuers, in the first and the last millisecond of them': under({
      revocationLists: [
        listOf(0, { thisUpdateMs: MADE_AT.getTime() }),
        listOf(1, { nextUpdateMs: MADE_AT.getTime() }),
      ],
    }),
    'in historical mode, a list made after the document, while the certificate lived': under({
      mode: 'historical',
      revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 2 * 86_400_000 })],
    }),
  },
})

export const constraintRefusals: readonly Refusal[] = [
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
  ...refusalsOf({
    ca_basic_constraints: {
      none: extended(3, keyUsage(keyCertSign)),
      'not critical': extended(2, authorityConstraints(1, false), authorityUsage),
      'no cA': extended(1, leafConstraints(), authorityUsage),
      'no extensions at all': altered(1, { extensions: null }),
    },
    ca_key_usage: {
      'no keyCertSign': extended(3, authorityConstraints(0), keyUsage(digitalSignature)),
      'no keyUsage in the root': trusted(usageless),
    },
    path_length_exceeded: {
      'a root that allows two': trusted(shallow),
      'a regional certificate that allows none': extended(
        1,
        authorityConstraints(0),
        authorityUsage,
      ),
      'a leaf that certifies another leaf': bundled([...cabundle, deeperAuthority()]),
    },
    leaf_is_ca: {
      cA: extended(4, authorityConstraints(0), authorityUsage),
    },
    leaf_key_usage: {
      'no digitalSignature': extended(
        4,
        leafConstraints(),
        keyUsage(KEY_USAGE_BITS.nonRepudiation),
      ),
      'no keyUsage': extended(4, leafConstraints()),
      'no extensions at all': altered(4, { extensions: null }),
    },
    certificate_not_yet_valid: {
      'an intermediate that begins a second after the document, in historical mode': {
        document: altered(1, { validity: validityOf(seconds(1), seconds(1000)) }),
        policy: { mode: 'historical' },
      },
    },
    certificate_expired: {
      'milliseconds after the last second': {
        document: altered(4, { validity: validityOf(seconds(-1), MADE_AT) }),
        at: new Date(MADE_AT.getTime() + 1),
      },
      'an intermediate, at the time of the document, in historical mode': {
        document: altered(3, { validity: validityOf(seconds(-9), seconds(-1)) }),
        policy: { mode: 'historical' },
      },
    },
    certificate_revoked: {
      'the leaf': under({ revoked: [{ issuer: leafIssuer, serial: Uint8Array.of(0x70, 0x04) }] }),
      'an intermediate, its serial padded': under({
        revoked: [{ issuer: partsOf(1).issuer, serial: Uint8Array.of(0, 0, 0x70, 0x01) }],
      }),
      'an intermediate, by a list of its issuer': under({
        revocationLists: [listOf(1, { serials: [Uint8Array.of(0, 0x70, 0x02)] })],
      }),
      'the root': under({
        revoked: [{ issuer: partsOf(0).issuer, serial: Uint8Array.of(0x70, 0x00) }],
      }),
      'the leaf, by the second of two entries': under({
        revoked: [5, 4].map((n) => ({ issuer: leafIssuer, serial: Uint8Array.of(0x70, n) })),
      }),
      'an intermediate, by the second of two lists': under({
        revocationLists: [listOf(2), listOf(1, { serials: [Uint8Array.of(0x70, 0x02)] })],
      }),
    },
    revocation_list_foreign: {
      'a list of another issuer': under({
        revocationLists: [listOf(1, { issuer: nameOf('other') })],
      }),
      'a list of an issuer that differs in its last bit': under({
        revocationLists: [listOf(1, { issuer: nearly(listOf(1).issuer) })],
      }),
      'a list of a key that differs in its last bit': under({
        revocationLists: [listOf(1, { issuerKey: nearly(listOf(1).issuerKey) })],
      }),
      'a list of the issuer by name, with another key': under({
        revocationLists: [listOf(1, { issuerKey: listOf(2).issuerKey })],
      }),
    },
    revocation_list_not_yet_valid: {
      'a list that begins a millisecond later': under({
        revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 1 })],
      }),
      'in historical mode, a list made after the certificate ended': under({
        mode: 'historical',
        revocationLists: [listOf(1, { thisUpdateMs: MADE_AT.getTime() + 4 * 86_400_000 })],
      }),
    },
    revocation_list_expired: {
      'a list that ended a millisecond ago': under({
        revocationLists: [listOf(1, { nextUpdateMs: MADE_AT.getTime() - 1 })],
      }),
    },
  }),
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
