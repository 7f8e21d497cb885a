import type { NvidiaCode, NvidiaRule } from '#attestation/providers/nvidia/gpu-rules.ts'
import type { GpuEvidence, GpuPolicy } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import {
  authorityConstraints,
  ECDSA_SHA256,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  nameOf,
  publicKeyInfo,
  signWith,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { bitString, integer, objectIdentifier, sequence } from '../nitro-builder/der-encoder.ts'
import {
  buildGpu,
  compositeId,
  FIRMWARE_ID,
  GPU_AT,
  GPU_BLOCKS,
  GPU_NONCE,
  GPU_OPAQUE,
  type GpuChange,
  type gpuCertificateParts,
  keyAt,
  measurementBlock,
  opaqueField,
  tcbInfo,
} from '../provider-builder/gpu-builder.ts'

type GpuCase = {
  readonly name: string
  readonly change?: GpuChange
  readonly evidence?: Partial<GpuEvidence>
  readonly policy?: Partial<GpuPolicy>
}

/** Evidence that breaks one rule, and the code of its refusal. */
export type GpuRefusal = GpuCase & { readonly code: NvidiaCode }

/** Evidence at the edge of a rule that is still accepted. */
export type GpuAcceptance = GpuCase & { readonly rule: NvidiaRule }

/** The evidence and the policy of a case. */
export function gpuCaseOf({ change, evidence, policy }: GpuCase) {
  const built = buildGpu(change)
  return {
    evidence: { ...built.evidence, ...evidence },
    policy: { ...built.policy, ...policy },
  }
}

const { keyCertSign, digitalSignature } = KEY_USAGE_BITS
const seconds = (count: number) => new Date(GPU_AT.getTime() + 1000 * count)
const setByte = (offset: number, value: number) => (bytes: Buffer) =>
  bytes.fill(value, offset, offset + 1)
const leaf = (parts: Partial<ReturnType<typeof gpuCertificateParts>>): GpuChange => ({
  certificates: { 4: parts },
})
const authority = (parts: Partial<ReturnType<typeof gpuCertificateParts>>): GpuChange => ({
  certificates: { 2: parts },
})
const withoutFirmware = GPU_OPAQUE.filter((field) => field[0] !== 20)
const SIGNATURE_BYTES = 96
const zeros = new Uint8Array(48)

export const gpuAcceptances: readonly GpuAcceptance[] = [
  { rule: 1, name: 'evidence of one GPU' },
  { rule: 2, name: 'slot 7', change: { evidence: setByte(36, 7) } },
  { rule: 3, name: 'no measurement at all', change: { blocks: [] } },
  {
    rule: 3,
    name: '255 measurements',
    change: { blocks: Array.from({ length: 255 }, (_, index) => measurementBlock(index + 1)) },
  },
  {
    rule: 4,
    name: 'fields of unknown types',
    change: { opaque: [...GPU_OPAQUE, opaqueField(999, new Uint8Array())] },
  },
  { rule: 5, name: 'the nonce that was asked for' },
  {
    rule: 6,
    name: 'the first second of a certificate',
    change: leaf({ validity: validityOf(GPU_AT, seconds(9)) }),
  },
  {
    rule: 6,
    name: 'the last second of a certificate',
    change: authority({ validity: validityOf(seconds(-9), GPU_AT) }),
  },
  { rule: 7, name: 'a signature by the leaf' },
  {
    rule: 8,
    name: 'the firmware id of a Blackwell, the first of two',
    change: { dice: tcbInfo(FIRMWARE_ID, zeros) },
  },
  {
    rule: 8,
    name: 'a switch without firmware id',
    change: { device: 'LS_10 A01 FSP FMC LF', opaque: withoutFirmware },
  },
]

export const gpuRefusals: readonly GpuRefusal[] = [
  { code: 'evidence_size', name: '65,537 bytes', evidence: { evidence: new Uint8Array(65_537) } },
  {
    code: 'evidence_size',
    name: 'a byte after the signature',
    change: { signed: (bytes) => Buffer.concat([bytes, Buffer.of(0)]) },
  },
  { code: 'evidence_truncated', name: 'no byte', evidence: { evidence: new Uint8Array() } },
  {
    code: 'evidence_truncated',
    name: 'a signature of 95 bytes',
    change: { signed: (bytes) => bytes.subarray(0, -1) },
  },
  { code: 'spdm_request', name: 'another version', change: { evidence: setByte(0, 0x12) } },
  {
    code: 'spdm_request',
    name: 'a request without signature',
    change: { evidence: setByte(2, 0) },
  },
  { code: 'spdm_request', name: 'slot 8', change: { evidence: setByte(36, 8) } },
  { code: 'spdm_response', name: 'an error', change: { evidence: setByte(38, 0x7f) } },
  { code: 'spdm_response', name: 'a parameter', change: { evidence: setByte(40, 1) } },
  {
    code: 'measurement_record',
    name: 'a block more than its bytes',
    change: { evidence: setByte(41, 4) },
  },
  {
    code: 'measurement_record',
    name: 'a longer digest',
    change: { blocks: [...GPU_BLOCKS, measurementBlock(4, Buffer.alloc(64))] },
  },
  {
    code: 'measurement_block',
    name: 'a block twice',
    change: { blocks: [measurementBlock(1), measurementBlock(1)] },
  },
  {
    code: 'measurement_block',
    name: 'blocks from 2 on',
    change: { blocks: [measurementBlock(2)] },
  },
  {
    code: 'measurement_block',
    name: 'a form that is not DMTF',
    change: { blocks: [measurementBlock(1).fill(2, 1, 2)] },
  },
  {
    code: 'measurement_block',
    name: 'a size that is not the digest',
    change: { blocks: [measurementBlock(1).fill(50, 2, 3)] },
  },
  {
    code: 'measurement_block',
    name: 'a digest of another length',
    change: { blocks: [measurementBlock(1).fill(32, 5, 6)] },
  },
  {
    code: 'opaque_data',
    name: 'a field longer than the data',
    change: { opaque: [opaqueField(3, Buffer.from('1')).fill(9, 2, 3)] },
  },
  { code: 'opaque_data', name: 'half a head', change: { opaque: [Buffer.of(3, 0)] } },
  {
    code: 'opaque_data',
    name: 'a driver that is not a version',
    change: { opaque: [opaqueField(3, Buffer.from('<b>'))] },
  },
  {
    code: 'opaque_data',
    name: 'a firmware id of 32 bytes',
    change: { opaque: [opaqueField(20, Buffer.alloc(32))] },
  },
  {
    code: 'opaque_duplicate',
    name: 'two firmware ids',
    change: { opaque: [...GPU_OPAQUE, opaqueField(20, FIRMWARE_ID)] },
  },
  {
    code: 'nonce_mismatch',
    name: 'evidence for another nonce',
    policy: { nonce: GPU_NONCE.with(31, 0) },
  },
  { code: 'pem_malformed', name: 'no certificates', evidence: { certificates: '' } },
  {
    code: 'pem_malformed',
    name: 'text after the certificates',
    evidence: { certificates: `${buildGpu().evidence.certificates}x` },
  },
  {
    code: 'root_untrusted',
    name: 'a development root under the default policy',
    policy: { roots: [new Uint8Array(32)] },
  },
  {
    code: 'root_untrusted',
    name: 'a chain without its root',
    change: { chain: (ders) => ders.slice(0, -1) },
  },
  {
    code: 'chain_order',
    name: "two authorities in each other's place",
    change: {
      chain: ([leafDer, third, second, ...rest]) =>
        [leafDer, second, third, ...rest].flatMap((der) => der ?? []),
    },
  },
  {
    code: 'chain_repeated_certificate',
    name: 'an authority twice',
    change: { chain: (ders) => ders.flatMap((der, index) => (index === 2 ? [der, der] : [der])) },
  },
  {
    code: 'certificate_signature_malformed',
    name: 'no signature',
    change: leaf({ sign: () => bitString(new Uint8Array()) }),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'a leaf that it signed itself',
    change: leaf({ sign: signWith(keyAt(4)) }),
  },
  {
    code: 'certificate_der',
    name: 'a byte after the leaf',
    change: {
      chain: ([first = new Uint8Array(), ...rest]) => [
        Buffer.concat([first, Buffer.of(0)]),
        ...rest,
      ],
    },
  },
  { code: 'certificate_version', name: 'version 1', change: leaf({ version: null }) },
  {
    code: 'certificate_algorithm_mismatch',
    name: 'SHA-256 outside',
    change: leaf({ outerAlgorithm: ECDSA_SHA256 }),
  },
  {
    code: 'certificate_algorithm',
    name: 'SHA-256',
    change: leaf({ innerAlgorithm: ECDSA_SHA256, outerAlgorithm: ECDSA_SHA256 }),
  },
  {
    code: 'certificate_key_type',
    name: 'another kind of key',
    change: leaf({
      publicKey: sequence(sequence(objectIdentifier('1.3.101.112')), bitString(new Uint8Array(32))),
    }),
  },
  {
    code: 'certificate_curve',
    name: 'a leaf on P-256',
    change: leaf({ publicKey: publicKeyInfo(generateKey('P-256')) }),
  },
  {
    code: 'certificate_point',
    name: 'a point on no curve',
    change: leaf({ publicKey: publicKeyInfo(generateKey()).with(-1, 0).with(-2, 0) }),
  },
  {
    code: 'certificate_duplicate_extension',
    name: 'two DICE extensions',
    change: leaf({
      extensions: [keyUsage(digitalSignature), compositeId(FIRMWARE_ID), compositeId(FIRMWARE_ID)],
    }),
  },
  {
    code: 'certificate_critical_extension',
    name: 'a critical DICE extension',
    change: leaf({
      extensions: [extension('2.23.133.5.4.1', { critical: true, value: integer(1) })],
    }),
  },
  { code: 'issuer_mismatch', name: 'an unknown issuer', change: leaf({ issuer: nameOf('other') }) },
  {
    code: 'ca_basic_constraints',
    name: 'an authority without',
    change: authority({ extensions: [keyUsage(keyCertSign)] }),
  },
  {
    code: 'ca_key_usage',
    name: 'an authority that may not certify',
    change: authority({ extensions: [authorityConstraints(null), keyUsage(digitalSignature)] }),
  },
  {
    code: 'path_length_exceeded',
    name: 'an authority of leaves alone',
    change: authority({ extensions: [authorityConstraints(0), keyUsage(keyCertSign)] }),
  },
  {
    code: 'leaf_is_ca',
    name: 'a leaf that is a CA',
    change: leaf({ extensions: [authorityConstraints(null), keyUsage(keyCertSign)] }),
  },
  {
    code: 'leaf_key_usage',
    name: 'a leaf without digitalSignature',
    change: leaf({ extensions: [compositeId(FIRMWARE_ID)] }),
  },
  {
    code: 'certificate_not_yet_valid',
    name: 'a leaf one second early',
    change: leaf({ validity: validityOf(seconds(1), seconds(9)) }),
  },
  {
    code: 'certificate_expired',
    name: 'an authority one second late',
    change: authority({ validity: validityOf(seconds(-9), seconds(-1)) }),
  },
  {
    code: 'signature_out_of_range',
    name: 'r of zero',
    change: { signed: (bytes) => bytes.fill(0, bytes.length - SIGNATURE_BYTES, bytes.length - 48) },
  },
  {
    code: 'signature_invalid',
    name: 'a bit of a measurement',
    change: { signed: (bytes) => setByte(60, (bytes[60] ?? 0) ^ 1)(bytes) },
  },
  {
    code: 'signature_invalid',
    name: 'another key in the leaf',
    change: leaf({ publicKey: publicKeyInfo(generateKey()) }),
  },
  {
    code: 'firmware_id_missing',
    name: 'a GPU without firmware id',
    change: { opaque: withoutFirmware },
  },
  {
    code: 'firmware_id_mismatch',
    name: 'other firmware than in the leaf',
    change: { dice: compositeId(FIRMWARE_ID.with(0, 0)) },
  },
  {
    code: 'firmware_id_mismatch',
    name: 'other firmware in a Blackwell',
    change: { dice: tcbInfo(zeros, FIRMWARE_ID.with(0, 0)) },
  },
  {
    code: 'firmware_id_mismatch',
    name: 'zeros, as the second id of a Blackwell',
    change: {
      dice: tcbInfo(FIRMWARE_ID, zeros),
      opaque: [...withoutFirmware, opaqueField(20, zeros)],
    },
  },
  { code: 'firmware_id_mismatch', name: 'a leaf without firmware id', change: { dice: null } },
  {
    code: 'firmware_id_mismatch',
    name: 'a DICE extension that is not DER',
    change: { dice: extension('2.23.133.5.4.1', { critical: false, value: Uint8Array.of(0x30) }) },
  },
]
