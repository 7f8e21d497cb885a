import {
  authorityConstraints,
  extension,
  generateKey,
  leafConstraints,
  publicKeyInfo,
  signWith,
} from '../nitro-builder/certificate-builder.ts'
import {
  bitString,
  encodeDer,
  integer,
  objectIdentifier,
  octetString,
  sequence,
  utf8String,
} from '../nitro-builder/der-encoder.ts'
import { buildChain, keyAt } from '../nitro-builder/development-pki.ts'
import { buildDocument } from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'
import {
  alsoExtended,
  altered,
  extensionsOf,
  p384Algorithm,
  pointOf,
  unknown,
} from './certificate-documents.ts'
import { documentOf, leafUsage } from './chain-documents.ts'

const sha256Algorithm = sequence(objectIdentifier('1.2.840.10045.4.3.2'))
const keyOf = (point: Uint8Array) => sequence(p384Algorithm, bitString(point))
const compressed = (point: Uint8Array) =>
  Uint8Array.of(2 + ((point.at(-1) ?? 0) & 1), ...point.subarray(1, 49))
const rsaKey = sequence(
  sequence(objectIdentifier('1.2.840.113549.1.1.1'), encodeDer(0x05)),
  bitString(sequence(integer(65537), integer(3))),
)
const flip = (bytes: Uint8Array, index: number) =>
  Uint8Array.from(bytes, (byte, i) => (i === index ? byte ^ 1 : byte))

/**
 * A leaf that an extension fills to `length` bytes. The signature varies by a few bytes, so it is
 * made until it fits.
 */
function filledLeaf(length: number): Uint8Array {
  for (let filler = length - 600; ; ) {
    const value = octetString(new Uint8Array(filler))
    const chain = buildChain({
      level: 4,
      parts: { extensions: [...extensionsOf(4), extension(unknown, { critical: false, value })] },
    })
    if (chain.certificate.length === length) return documentOf(chain)
    filler += length - chain.certificate.length
  }
}

/** Rule 15, one certificate at a time. */
export const certificateAcceptances: readonly Acceptance[] = [
  { rule: 15, name: "AWS's profile", document: buildDocument() },
  {
    rule: 15,
    name: 'an unknown extension that is not critical',
    document: alsoExtended(4, extension(unknown, { critical: false, value: utf8String('x') })),
  },
  {
    rule: 15,
    name: 'a GeneralizedTime from 2050 on',
    document: altered(4, {
      validity: sequence(
        encodeDer(0x17, Buffer.from('260304040607Z')),
        encodeDer(0x18, Buffer.from('20500101000000Z')),
      ),
    }),
  },
  {
    rule: 15,
    name: 'a GeneralizedTime of an earlier year in an unknown extension',
    document: alsoExtended(
      4,
      extension(unknown, {
        critical: false,
        value: encodeDer(0x18, Buffer.from('20260304040607Z')),
      }),
    ),
  },
  {
    rule: 15,
    name: 'keyUsage of nine bits',
    document: altered(4, {
      extensions: [
        leafConstraints(),
        extension('2.5.29.15', { critical: true, value: bitString(Uint8Array.of(0x80, 0x80), 7) }),
      ],
    }),
  },
  {
    rule: 15,
    name: 'a path length of 127',
    document: altered(1, { extensions: [authorityConstraints(127), ...extensionsOf(1).slice(1)] }),
  },
  { rule: 15, name: 'a serial number of zero', document: altered(4, { serial: integer(0) }) },
  {
    rule: 15,
    name: 'a serial number of 21 bytes',
    document: altered(4, { serial: integer(2n ** 160n - 1n) }),
  },
  { rule: 10, name: 'a certificate of 1024 bytes', document: filledLeaf(1024) },
  {
    rule: 15,
    name: 'a subject without common name',
    document: altered(4, { subject: sequence() }),
  },
]

export const certificateRefusals: readonly Refusal[] = [
  { code: 'certificate_version', name: 'v1 by default', document: altered(4, { version: null }) },
  {
    code: 'certificate_version',
    name: 'v1 in so many words',
    document: altered(4, { version: encodeDer(0xa0, integer(0)) }),
  },
  {
    code: 'certificate_version',
    name: 'v2',
    document: altered(3, { version: encodeDer(0xa0, integer(1)) }),
  },
  {
    code: 'certificate_version',
    name: 'v4',
    document: altered(4, { version: encodeDer(0xa0, integer(3)) }),
  },
  {
    code: 'certificate_version',
    name: 'two versions',
    document: altered(4, { version: encodeDer(0xa0, integer(2), integer(2)) }),
  },
  {
    code: 'certificate_algorithm_mismatch',
    name: 'SHA-256 outside',
    document: altered(4, { outerAlgorithm: sha256Algorithm }),
  },
  {
    code: 'certificate_algorithm_mismatch',
    name: 'NULL parameters inside',
    document: altered(2, {
      innerAlgorithm: sequence(objectIdentifier('1.2.840.10045.4.3.3'), encodeDer(0x05)),
    }),
  },
  {
    code: 'certificate_algorithm',
    name: 'SHA-256 inside and outside',
    document: altered(4, {
      innerAlgorithm: sha256Algorithm,
      outerAlgorithm: sha256Algorithm,
      sign: signWith(keyAt(3), 'sha256'),
    }),
  },
  { code: 'certificate_key_type', name: 'an RSA key', document: altered(4, { publicKey: rsaKey }) },
  {
    code: 'certificate_key_type',
    name: 'an RSA key in an intermediate',
    document: altered(1, { publicKey: rsaKey }),
  },
  {
    code: 'certificate_curve',
    name: 'P-256',
    document: altered(4, { publicKey: publicKeyInfo(generateKey('P-256')) }),
  },
  {
    code: 'certificate_curve',
    name: 'P-521 in an intermediate',
    document: altered(2, { publicKey: publicKeyInfo(generateKey('P-521')) }),
  },
  {
    code: 'certificate_curve',
    name: 'secp256k1',
    document: altered(4, { publicKey: publicKeyInfo(generateKey('secp256k1')) }),
  },
  {
    code: 'certificate_curve',
    name: 'no curve',
    document: altered(4, {
      publicKey: sequence(sequence(objectIdentifier('1.2.840.10045.2.1')), bitString(pointOf(4))),
    }),
  },
  {
    code: 'certificate_curve',
    name: 'a curve in so many numbers',
    document: altered(4, {
      publicKey: sequence(
        sequence(objectIdentifier('1.2.840.10045.2.1'), sequence(integer(1))),
        bitString(pointOf(4)),
      ),
    }),
  },
  {
    code: 'certificate_point',
    name: 'a point off the curve',
    document: altered(4, { publicKey: keyOf(flip(pointOf(4), 96)) }),
  },
  {
    code: 'certificate_point',
    name: 'a point off the curve in an intermediate',
    document: altered(1, { publicKey: keyOf(flip(pointOf(1), 96)) }),
  },
  {
    code: 'certificate_point',
    name: 'a compressed point',
    // The same point in another form: only the rule refuses it.
    document: altered(4, { publicKey: keyOf(compressed(pointOf(4))) }),
  },
  {
    code: 'certificate_point',
    name: 'the point at infinity',
    document: altered(4, { publicKey: keyOf(Uint8Array.of(0)) }),
  },
  {
    code: 'certificate_point',
    name: 'the point (0, 0)',
    document: altered(4, { publicKey: keyOf(Uint8Array.of(4, ...new Uint8Array(96))) }),
  },
  {
    code: 'certificate_point',
    name: 'coordinates beyond the field',
    document: altered(4, { publicKey: keyOf(Uint8Array.of(4, ...new Uint8Array(96).fill(0xff))) }),
  },
  {
    code: 'certificate_duplicate_extension',
    name: 'keyUsage twice',
    document: alsoExtended(4, leafUsage),
  },
  {
    code: 'certificate_duplicate_extension',
    name: 'basicConstraints twice',
    document: alsoExtended(3, authorityConstraints(0)),
  },
  {
    code: 'certificate_duplicate_extension',
    name: 'an unknown one twice',
    document: alsoExtended(
      4,
      ...[1, 2].map((i) => extension(unknown, { critical: false, value: integer(i) })),
    ),
  },
  {
    code: 'certificate_critical_extension',
    name: 'an unknown one',
    document: alsoExtended(4, extension(unknown, { critical: true, value: integer(1) })),
  },
  {
    code: 'certificate_critical_extension',
    name: 'name constraints in a CA',
    document: alsoExtended(1, extension('2.5.29.30', { critical: true, value: sequence() })),
  },
  {
    code: 'certificate_critical_extension',
    name: 'a critical extended key usage',
    document: alsoExtended(
      4,
      extension('2.5.29.37', {
        critical: true,
        value: sequence(objectIdentifier('1.3.6.1.5.5.7.3.1')),
      }),
    ),
  },
]
