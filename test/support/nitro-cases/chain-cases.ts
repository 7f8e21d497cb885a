import { createHash } from 'node:crypto'
import { AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import {
  authorityConstraints,
  buildCertificate,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  nameOf,
  publicKeyInfo,
  signWith,
} from '../nitro-builder/certificate-builder.ts'

import { bitString, encodeDer, integer, sequence } from '../nitro-builder/der-encoder.ts'
import { buildChain, type Chain, keyAt, partsOf } from '../nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'
import { altered, bundled, documentOf, trusting } from './chain-documents.ts'

const sha256 = (der: Uint8Array) => createHash('sha256').update(der).digest()
const { cabundle } = standardChain
const [
  root = new Uint8Array(),
  regional = new Uint8Array(),
  zonal = new Uint8Array(),
  instance = new Uint8Array(),
] = cabundle
/** A root that certifies the leaf itself. */
const shortChain: Chain = {
  ...buildChain({ level: 4, parts: { issuer: partsOf(0).subject, sign: signWith(keyAt(0)) } }),
  cabundle: [root],
}
/** A root with AWS's name that is not pinned. */
const impostor = buildChain({ level: 0, parts: { serial: integer(99) } })
const signedBy = (key: ReturnType<typeof generateKey>, level: number) =>
  buildChain({ level, parts: { sign: signWith(key) } })
const anybodys = signedBy(generateKey(), 0)
const scalars = (...values: readonly Uint8Array[]) => bitString(sequence(...values))
const order = BigInt(
  '0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973',
)
const withSignature = (bits: Uint8Array) => altered({ level: 4, parts: { sign: () => bits } })
const leafIssuer = partsOf(4).issuer
/** The leaf's issuer with another type for the country: equal to people, but not in its bytes. */
const retyped = Uint8Array.from(leafIssuer).with(leafIssuer.indexOf(0x13), 0x0c)

/** A root, and 31 certificates below it that each certify the next. */
function longestChain(): Chain {
  const keys = Array.from({ length: 32 }, (_, index) => (index === 0 ? keyAt(0) : generateKey()))
  const nameAt = (index: number) => (index === 0 ? partsOf(0).subject : nameOf(`${index}`))
  const keyOf = (index: number) => keys[index] ?? keyAt(0)
  const below = keys.slice(1).map((key, index) =>
    buildCertificate({
      ...partsOf(1),
      issuer: nameAt(index),
      subject: nameAt(index + 1),
      publicKey: publicKeyInfo(key),
      extensions: [authorityConstraints(null), keyUsage(KEY_USAGE_BITS.keyCertSign)],
      sign: signWith(keyOf(index)),
    }),
  )
  const leaf = buildChain({ level: 4, parts: { issuer: nameAt(31), sign: signWith(keyOf(31)) } })
  return { ...leaf, cabundle: [root, ...below] }
}

/** Rules 13, 14 and 16. */
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
  { rule: 10, name: '32 certificates in the bundle', document: documentOf(longestChain()) },
  { rule: 16, name: 'names that are equal byte for byte', document: buildDocument() },
]

export const chainRefusals: readonly Refusal[] = [
  { code: 'root_untrusted', name: 'a root nobody pinned', document: documentOf(impostor) },
  {
    code: 'root_untrusted',
    name: "AWS's root alone is trusted",
    document: buildDocument(),
    policy: { roots: [AWS_ROOT_SHA256] },
  },
  {
    code: 'root_untrusted',
    name: 'no root in the bundle',
    document: bundled([regional, zonal, instance]),
  },
  {
    code: 'root_untrusted',
    name: 'a root with one byte changed',
    document: bundled([
      root.with(-1, (root.at(-1) ?? 0) ^ 1),
      regional,
      zonal,
      instance,
    ] as Chain['cabundle']),
  },
  {
    code: 'root_untrusted',
    name: 'garbage instead of certificates',
    document: bundled([Uint8Array.of(0x30, 0x80), Uint8Array.of(0xff)]),
  },
  {
    code: 'chain_order',
    name: 'the bundle backwards',
    document: bundled([instance, zonal, regional, root]),
  },
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
    document: withSignature(
      bitString(Buffer.concat([sequence(integer(1), integer(1)), Buffer.of(0)])),
    ),
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
  {
    code: 'issuer_mismatch',
    name: 'a missing intermediate',
    document: bundled([root, regional, instance]),
  },
  {
    code: 'chain_order',
    name: 'a stranger in the bundle',
    document: bundled([...cabundle, stranger()]),
  },
]

/** A valid CA certificate by the root that issued no certificate of the chain. */
function stranger(): Uint8Array<ArrayBuffer> {
  const key = generateKey()
  return buildCertificate({
    ...partsOf(1),
    subject: nameOf('stranger'),
    publicKey: publicKeyInfo(key),
  })
}
