import { extension, leafConstraints, signWith } from '../nitro-builder/certificate-builder.ts'
import {
  bitString,
  boolean,
  encodeDer,
  integer,
  objectIdentifier,
  octetString,
  sequence,
  utf8String,
} from '../nitro-builder/der-encoder.ts'
import { keyAt } from '../nitro-builder/development-pki.ts'
import { standardChain } from '../nitro-builder/document-builder.ts'
import { refusalsOf } from './case.ts'
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

const withLeaf = (certificate: Uint8Array<ArrayBuffer>) =>
  documentOf({ ...standardChain, certificate })
const utcTime = (text: string) => encodeDer(0x17, Buffer.from(text))
const generalizedTime = (text: string) => encodeDer(0x18, Buffer.from(text))
const constraints = (...content: readonly Uint8Array[]) =>
  extension('2.5.29.19', { critical: true, value: sequence(...content) })
const usage = (...content: readonly number[]) =>
  extension('2.5.29.15', { critical: false, value: encodeDer(0x03, Uint8Array.from(content)) })

/** Rule 15: certificates that are not in the form of RFC 5280. der.test.ts has the rules of DER. */
export const derRefusals = refusalsOf({
  certificate_der: {
    'a byte after the certificate': withLeaf(Uint8Array.of(...standardChain.certificate, 0)),
    'the last byte missing': withLeaf(standardChain.certificate.slice(0, -1)),
    'no certificate at all': withLeaf(Uint8Array.from(Buffer.from('hello'))),
    'an indefinite length': withLeaf(Uint8Array.of(0x30, 0x80, 0, 0)),
    'a negative serial number': altered(4, { serial: encodeDer(0x02, Uint8Array.of(0xff)) }),
    'a serial number that is no integer': altered(4, { serial: octetString(Uint8Array.of(1)) }),
    'critical FALSE, which is the default': alsoExtended(
      4,
      sequence(objectIdentifier(unknown), boolean(false), octetString(sequence())),
    ),
    'an extension whose value is no DER': alsoExtended(
      4,
      sequence(objectIdentifier(unknown), octetString(Uint8Array.of(0x30, 1))),
    ),
    'an extension without a value': alsoExtended(4, sequence(objectIdentifier(unknown))),
    'an empty list of extensions': altered(4, { extensions: [] }),
    'a field after the extensions': altered(4, { extraFields: [encodeDer(0xa4, sequence())] }),
    'unique identifiers': altered(4, {
      extensions: null,
      extraFields: [encodeDer(0x81, Uint8Array.of(0))],
    }),
    'cA FALSE, which is the default': extended(4, constraints(boolean(false)), leafUsage),
    'a path length without cA': extended(4, constraints(integer(0)), leafUsage),
    'a negative path length': extended(
      3,
      constraints(boolean(true), encodeDer(0x02, Uint8Array.of(0xff))),
      ...extensionsOf(3).slice(1),
    ),
    'three fields in basicConstraints': extended(
      3,
      constraints(boolean(true), integer(0), integer(0)),
      ...extensionsOf(3).slice(1),
    ),
    'keyUsage with a trailing zero bit': extended(4, leafConstraints(), usage(6, 0x80)),
    'keyUsage without bits': extended(4, leafConstraints(), usage(0)),
    'keyUsage of a tenth bit': extended(4, leafConstraints(), usage(6, 0x80, 0x40)),
    'a path length of 128, which is beyond a limit of ours': extended(
      1,
      constraints(boolean(true), integer(128)),
      ...extensionsOf(1).slice(1),
    ),
    'a GeneralizedTime before 2050': altered(4, {
      validity: sequence(utcTime('260304040607Z'), generalizedTime('20491231235959Z')),
    }),
    'GeneralizedTimes of today': altered(4, {
      validity: sequence(generalizedTime('20260304040607Z'), generalizedTime('20260304070607Z')),
    }),
    'an unknown extension of two values': alsoExtended(
      4,
      sequence(objectIdentifier(unknown), octetString(Uint8Array.of(5, 0, 5, 0))),
    ),
    'an unknown extension of no value': alsoExtended(
      4,
      sequence(objectIdentifier(unknown), octetString(new Uint8Array())),
    ),
    'a validity of one time': altered(4, { validity: sequence(utcTime('260304040607Z')) }),
    'a subject that is no name': altered(4, { subject: utf8String('leaf') }),
    'a key with three fields': altered(4, {
      publicKey: sequence(p384Algorithm, bitString(pointOf(4)), integer(1)),
    }),
    'a key with unused bits': altered(4, {
      publicKey: sequence(p384Algorithm, bitString(Uint8Array.of(...pointOf(4), 0), 1)),
    }),
    'a signature that is no bit string': altered(4, {
      sign: (signed) => octetString(signWith(keyAt(3))(signed)),
    }),
  },
})
