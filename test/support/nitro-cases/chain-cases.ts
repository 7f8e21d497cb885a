import { createHash } from 'node:crypto'
import {
  authorityConstraints,
  buildCertificate,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  nameOf,
  publicKeyInfo,
  signWith,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { bitString, encodeDer, integer, sequence } from '../nitro-builder/der-encoder.ts'
import {
  type Alteration,
  buildChain,
  type Chain,
  keyAt,
  MADE_AT,
  partsOf,
} from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'

const documentOf = (chain: Chain) => buildDocument({ chain })
const altered = (...alterations: readonly Alteration[]) => documentOf(buildChain(...alterations))
const bundled = (cabundle: Chain['cabundle']) => documentOf({ ...standardChain, cabundle })
const trusting = ({ rootSha256 }: Chain) => ({ roots: [rootSha256] })
const sha256 = (der: Uint8Array) => createHash('sha256').update(der).digest()

const { cabundle } = standardChain
const [
  root = new Uint8Array(),
  regional = new Uint8Array(),
  zonal = new Uint8Array(),
  instance = new Uint8Array(),
] = cabundle
const { digitalSignature, keyCertSign, cRLSign } = KEY_USAGE_BITS
const authorityUsage = keyUsage(digitalSignature | keyCertSign | cRLSign)
const leafUsage = keyUsage(digitalSignature, false)

/** A root that certifies the leaf itself. */
const shortChain: Chain = {
  ...buildChain({ level: 4, parts: { issuer: partsOf(0).subject, sign: signWith(keyAt(0)) } }),
  cabundle: [root],
}
/** A root under AWS's name that nobody pinned. */
const impostor = buildChain({ level: 0, parts: { serial: integer(99) } })
const signedBy = (key: ReturnType<typeof generateKey>, level: number) =>
  buildChain({ level, parts: { sign: signWith(key) } })
const anybodys = signedBy(generateKey(), 0)
const rootWith = (...extensions: readonly Uint8Array[]) => buildChain({ level: 0, parts: { extensions } })
const usageless = rootWith(authorityConstraints(null))
const shallow = rootWith(authorityConstraints(2), authorityUsage)
const deepEnough = rootWith(authorityConstraints(3), authorityUsage)
const seconds = (count: number) => new Date(MADE_AT.getTime() + 1000 * count)
const validFor = (level: number, from: Date, to: Date) =>
  buildChain({ level, parts: { validity: validityOf(from, to) } })
const futureRoot = validFor(0, seconds(1), seconds(1000))
const pastRoot = validFor(0, seconds(-1000), seconds(-1))
const scalars = (...values: readonly Uint8Array[]) => bitString(sequence(...values))
const order = BigInt(
  '0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973',
)
const withSignature = (bits: Uint8Array) => altered({ level: 4, parts: { sign: () => bits } })
const leafIssuer = partsOf(4).issuer
/** As the leaf's issuer but for the type of the country: equal to people, not by bytes. */
const retyped = Uint8Array.from(leafIssuer).with(leafIssuer.indexOf(0x13), 0x0c)

/** Rules 13, 14 and 16 to 19. */
export const chainAcceptances: readonly Acceptance[] = [
  { rule: 13, name: 'a pinned root', document: buildDocument() },
  {
    rule: 13,
    name: 'one of two pinned roots',
    document: buildDocument(),
    policy: { roots: [sha256(regional), sha256(root)] },
  },
  { rule: 14, name: 'root, regional, zonal, instance', document: buildDocument() },
  { rule: 14, name: 'a root that certifies the leaf itself', document: documentOf(shortChain) },
  {
    rule: 14,
    name: "a pinned root whose own signature is anybody's",
    document: documentOf(anybodys),
    policy: trusting(anybodys),
  },
  { rule: 16, name: 'names that are equal byte for byte', document: buildDocument() },
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
]

export const chainRefusals: readonly Refusal[] = [
  { code: 'root_untrusted', name: 'a root nobody pinned', document: documentOf(impostor) },
  {
    code: 'root_untrusted',
    name: "AWS's root alone is trusted",
    document: buildDocument(),
    policy: { roots: undefined },
  },
  { code: 'root_untrusted', name: 'no root in the bundle', document: bundled([regional, zonal, instance]) },
  {
    code: 'root_untrusted',
    name: 'a root with one byte changed',
    document: bundled([root.with(-1, 0), regional, zonal, instance] as Chain['cabundle']),
  },
  {
    code: 'root_untrusted',
    name: 'garbage instead of certificates',
    document: bundled([Uint8Array.of(0x30, 0x80), Uint8Array.of(0xff)]),
  },
  { code: 'chain_order', name: 'the bundle backwards', document: bundled([instance, zonal, regional, root]) },
  {
    code: 'chain_order',
    name: 'two intermediates exchanged',
    document: bundled([root, zonal, regional, instance]),
  },
  {
    code: 'chain_repeated_certificate',
    name: 'the root twice',
    document: bundled([root, root, regional, zonal, instance]),
  },
  {
    code: 'chain_repeated_certificate',
    name: 'the leaf in the bundle',
    document: bundled([...cabundle, standardChain.certificate]),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'a leaf signed by another key',
    document: documentOf(signedBy(generateKey(), 4)),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'a regional certificate signed by another key',
    document: documentOf(signedBy(generateKey(), 1)),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'an instance certificate signed by itself',
    document: documentOf(signedBy(keyAt(3), 3)),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'SHA-256 under the name of SHA-384',
    document: altered({ level: 4, parts: { sign: signWith(keyAt(3), 'sha256') } }),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'r of zero',
    document: withSignature(scalars(integer(0), integer(1))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 's of zero',
    document: withSignature(scalars(integer(1), integer(0))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'r of n',
    document: withSignature(scalars(integer(order), integer(1))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 's of n',
    document: withSignature(scalars(integer(1), integer(order))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'r of 2^384',
    document: withSignature(scalars(integer(2n ** 384n), integer(1))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'a negative r',
    document: withSignature(scalars(encodeDer(0x02, Uint8Array.of(0x80)), integer(1))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'three integers',
    document: withSignature(scalars(integer(1), integer(1), integer(1))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'bytes after the integers',
    document: withSignature(bitString(Buffer.concat([sequence(integer(1), integer(1)), Buffer.of(0)]))),
  },
  {
    code: 'certificate_signature_malformed',
    name: 'no bytes',
    document: withSignature(bitString(new Uint8Array())),
  },
  {
    code: 'issuer_mismatch',
    name: 'a leaf of an unknown issuer',
    document: altered({ level: 4, parts: { issuer: nameOf('nobody') } }),
  },
  {
    code: 'issuer_mismatch',
    name: 'an issuer in other string types',
    document: altered({ level: 4, parts: { issuer: retyped } }),
  },
  { code: 'issuer_mismatch', name: 'a missing intermediate', document: bundled([root, regional, instance]) },
  { code: 'chain_order', name: 'a stranger in the bundle', document: bundled([...cabundle, stranger()]) },
  {
    code: 'ca_basic_constraints',
    name: 'none',
    document: altered({ level: 3, parts: { extensions: [keyUsage(keyCertSign)] } }),
  },
  {
    code: 'ca_basic_constraints',
    name: 'not critical',
    document: altered({ level: 2, parts: { extensions: [authorityConstraints(1, false), authorityUsage] } }),
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
    document: altered({ level: 1, parts: { extensions: [authorityConstraints(0), authorityUsage] } }),
  },
  {
    code: 'path_length_exceeded',
    name: 'a leaf that certifies another leaf',
    document: bundled([...cabundle, deeperAuthority()]),
  },
  {
    code: 'leaf_is_ca',
    name: 'cA',
    document: altered({ level: 4, parts: { extensions: [authorityConstraints(0), authorityUsage] } }),
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
    const early = level === 0 ? futureRoot : validFor(level, seconds(1), seconds(1000))
    const late = level === 0 ? pastRoot : validFor(level, seconds(-1000), seconds(-1))
    return [
      {
        code: 'certificate_not_yet_valid',
        name: `level ${level}, one second early`,
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
    name: 'the root',
    document: buildDocument(),
    policy: { revoked: [{ issuer: partsOf(0).issuer, serial: Uint8Array.of(0x70, 0x00) }] },
  },
]

/** A valid CA certificate of the root that issued nothing in the chain. */
function stranger(): Uint8Array<ArrayBuffer> {
  const key = generateKey()
  return buildCertificate({ ...partsOf(1), subject: nameOf('stranger'), publicKey: publicKeyInfo(key) })
}

/** A CA certificate made by the instance, which may make leaves only, that stands between it and the leaf. */
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
