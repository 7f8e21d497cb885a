import { createHash } from 'node:crypto'
import { AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import { nearly } from '../case-table.ts'
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
import { type Acceptance, acceptancesOf, type Refusal, refusalsOf, under } from './case.ts'
import { altered } from './certificate-documents.ts'
import { bundled, documentOf, trusted } from './chain-documents.ts'

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
const withSignature = (bits: Uint8Array) => altered(4, { sign: () => bits })
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
export const chainAcceptances: readonly Acceptance[] = acceptancesOf({
  13: {
    'a pinned root': buildDocument(),
    'one of two pinned roots': under({ roots: [sha256(regional), sha256(root)] }),
  },
  14: {
    'root, regional, zonal, instance': buildDocument(),
    'a root that certifies the leaf itself': documentOf(shortChain),
    "a pinned root whose own signature is anybody's": trusted(anybodys),
  },
  10: { '32 certificates in the bundle': documentOf(longestChain()) },
  16: { 'names that are equal byte for byte': buildDocument() },
})

export const chainRefusals: readonly Refusal[] = refusalsOf({
  root_untrusted: {
    'a root nobody pinned': documentOf(impostor),
    "AWS's root alone is trusted": under({ roots: [AWS_ROOT_SHA256] }),
    'a pin that differs in its last bit': under({ roots: [nearly(standardChain.rootSha256)] }),
    'no root in the bundle': bundled([regional, zonal, instance]),
    'a root with one byte changed': bundled([
      root.with(-1, (root.at(-1) ?? 0) ^ 1),
      regional,
      zonal,
      instance,
    ] as Chain['cabundle']),
    'garbage instead of certificates': bundled([Uint8Array.of(0x30, 0x80), Uint8Array.of(0xff)]),
  },
  chain_order: {
    'the bundle backwards': bundled([instance, zonal, regional, root]),
    'two intermediates exchanged': bundled([root, zonal, regional, instance]),
    'a stranger in the bundle': bundled([...cabundle, stranger()]),
  },
  chain_repeated_certificate: {
    'the root twice': bundled([root, root, regional, zonal, instance]),
    'the leaf in the bundle': bundled([...cabundle, standardChain.certificate]),
  },
  certificate_signature_invalid: {
    'a leaf signed by another key': documentOf(signedBy(generateKey(), 4)),
    'a regional certificate signed by another key': documentOf(signedBy(generateKey(), 1)),
    'an instance certificate signed by itself': documentOf(signedBy(keyAt(3), 3)),
    'SHA-256 under the name of SHA-384': altered(4, { sign: signWith(keyAt(3), 'sha256') }),
  },
  certificate_signature_malformed: {
    'r of zero': withSignature(scalars(integer(0), integer(1))),
    's of zero': withSignature(scalars(integer(1), integer(0))),
    'r of n': withSignature(scalars(integer(order), integer(1))),
    's of n': withSignature(scalars(integer(1), integer(order))),
    'r of 2^384': withSignature(scalars(integer(2n ** 384n), integer(1))),
    'a negative r': withSignature(scalars(encodeDer(0x02, Uint8Array.of(0x80)), integer(1))),
    'three integers': withSignature(scalars(integer(1), integer(1), integer(1))),
    'bytes after the integers': withSignature(
      bitString(Buffer.concat([sequence(integer(1), integer(1)), Buffer.of(0)])),
    ),
    'no bytes': withSignature(bitString(new Uint8Array())),
  },
  issuer_mismatch: {
    'a leaf of an unknown issuer': altered(4, { issuer: nameOf('nobody') }),
    'an issuer in other string types': altered(4, { issuer: retyped }),
    'a missing intermediate': bundled([root, regional, instance]),
  },
})

/** A valid CA certificate by the root that issued no certificate of the chain. */
function stranger(): Uint8Array<ArrayBuffer> {
  const key = generateKey()
  return buildCertificate({
    ...partsOf(1),
    subject: nameOf('stranger'),
    publicKey: publicKeyInfo(key),
  })
}
