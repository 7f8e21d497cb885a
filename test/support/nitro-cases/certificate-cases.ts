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
import { acceptancesOf, refusalsOf } from './case.ts'
import {
  alsoExtended,
  altered,
  extended,
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
export const certificateAcceptances = acceptancesOf({
  15: {
    "AWS's profile": buildDocument(),
    'an unknown extension that is not critical': alsoExtended(
      4,
      extension(unknown, { critical: false, value: utf8String('x') }),
    ),
    'a GeneralizedTime from 2050 on': altered(4, {
      validity: sequence(
        encodeDer(0x17, Buffer.from('260304040607Z')),
        encodeDer(0x18, Buffer.from('20500101000000Z')),
      ),
    }),
    'a GeneralizedTime of an earlier year in an unknown extension': alsoExtended(
      4,
      extension(unknown, {
        critical: false,
        value: encodeDer(0x18, Buffer.from('20260304040607Z')),
      }),
    ),
    'keyUsage of nine bits': extended(
      4,
      leafConstraints(),
      extension('2.5.29.15', {
        critical: true,
        value: bitString(Uint8Array.of(0x80, 0x80), 7),
      }),
    ),
    'a path length of 127': extended(1, authorityConstraints(127), ...extensionsOf(1).slice(1)),
    'a serial number of zero': altered(4, { serial: integer(0) }),
    'a serial number of 21 bytes': altered(4, { serial: integer(2n ** 160n - 1n) }),
    'a subject without common name': altered(4, { subject: sequence() }),
  },
  10: { 'a certificate of 1024 bytes': filledLeaf(1024) },
})

export const certificateRefusals = refusalsOf({
  certificate_version: {
    'v1 by default': altered(4, { version: null }),
    'v1 in so many words': altered(4, { version: encodeDer(0xa0, integer(0)) }),
    v2: altered(3, { version: encodeDer(0xa0, integer(1)) }),
    v4: altered(4, { version: encodeDer(0xa0, integer(3)) }),
    'two versions': altered(4, { version: encodeDer(0xa0, integer(2), integer(2)) }),
  },
  certificate_algorithm_mismatch: {
    'SHA-256 outside': altered(4, { outerAlgorithm: sha256Algorithm }),
    'NULL parameters inside': altered(2, {
      innerAlgorithm: sequence(objectIdentifier('1.2.840.10045.4.3.3'), encodeDer(0x05)),
    }),
  },
  certificate_algorithm: {
    'SHA-256 inside and outside': altered(4, {
      innerAlgorithm: sha256Algorithm,
      outerAlgorithm: sha256Algorithm,
      sign: signWith(keyAt(3), 'sha256'),
    }),
  },
  certificate_key_type: {
    'an RSA key': altered(4, { publicKey: rsaKey }),
    'an RSA key in an intermediate': altered(1, { publicKey: rsaKey }),
  },
  certificate_curve: {
    'P-256': altered(4, { publicKey: publicKeyInfo(generateKey('P-256')) }),
    'P-521 in an intermediate': altered(2, { publicKey: publicKeyInfo(generateKey('P-521')) }),
    secp256k1: altered(4, { publicKey: publicKeyInfo(generateKey('secp256k1')) }),
    'no curve': altered(4, {
      publicKey: sequence(sequence(objectIdentifier('1.2.840.10045.2.1')), bitString(pointOf(4))),
    }),
    'a curve in so many numbers': altered(4, {
      publicKey: sequence(
        sequence(objectIdentifier('1.2.840.10045.2.1'), sequence(integer(1))),
        bitString(pointOf(4)),
      ),
    }),
  },
  certificate_point: {
    'a point off the curve': altered(4, { publicKey: keyOf(flip(pointOf(4), 96)) }),
    'a point off the curve in an intermediate': altered(1, {
      publicKey: keyOf(flip(pointOf(1), 96)),
    }),
    // The same point in another form: only the rule refuses it.
    'a compressed point': altered(4, { publicKey: keyOf(compressed(pointOf(4))) }),
    'the point at infinity': altered(4, { publicKey: keyOf(Uint8Array.of(0)) }),
    'the point (0, 0)': altered(4, { publicKey: keyOf(Uint8Array.of(4, ...new Uint8Array(96))) }),
    'coordinates beyond the field': altered(4, {
      publicKey: keyOf(Uint8Array.of(4, ...new Uint8Array(96).fill(0xff))),
    }),
  },
  certificate_duplicate_extension: {
    'keyUsage twice': alsoExtended(4, leafUsage),
    'basicConstraints twice': alsoExtended(3, authorityConstraints(0)),
    'an unknown one twice': alsoExtended(
      4,
      ...[1, 2].map((i) => extension(unknown, { critical: false, value: integer(i) })),
    ),
  },
  certificate_critical_extension: {
    'an unknown one': alsoExtended(4, extension(unknown, { critical: true, value: integer(1) })),
    'name constraints in a CA': alsoExtended(
      1,
      extension('2.5.29.30', { critical: true, value: sequence() }),
    ),
    'a critical extended key usage': alsoExtended(
      4,
      extension('2.5.29.37', {
        critical: true,
        value: sequence(objectIdentifier('1.3.6.1.5.5.7.3.1')),
      }),
    ),
  },
})
