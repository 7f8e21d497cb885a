import type { NvidiaCode, NvidiaRule } from '#attestation/providers/nvidia/gpu-rules.ts'
import type { GpuEvidence, GpuPolicy } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import { casesOf, nearly } from '../case-table.ts'
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

type GpuCase = GpuChange & {
  /** Changes the evidence after it was built. */
  readonly replaced?: Partial<GpuEvidence>
  readonly policy?: Partial<GpuPolicy>
}

/** The evidence and the policy of a case. */
export function gpuCaseOf({ replaced, policy, ...change }: GpuCase) {
  const built = buildGpu(change)
  return {
    evidence: { ...built.evidence, ...replaced },
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

export const gpuAcceptances = casesOf<'rule', NvidiaRule, GpuCase>('rule', {
  1: { 'evidence of one GPU': {} },
  2: { 'slot 7': { evidence: setByte(36, 7) } },
  3: {
    'no measurement at all': { blocks: [] },
    '255 measurements': {
      blocks: Array.from({ length: 255 }, (_, index) => measurementBlock(index + 1)),
    },
  },
  4: {
    'fields of unknown types': { opaque: [...GPU_OPAQUE, opaqueField(999, new Uint8Array())] },
  },
  5: { 'the nonce that was asked for': {} },
  6: {
    'certificates that end in five NULs': {
      pem: (pem) => `${pem}\0\0\0\0\0`,
    },
    'the first second of a certificate': leaf({ validity: validityOf(GPU_AT, seconds(9)) }),
    'the last second of a certificate': authority({ validity: validityOf(seconds(-9), GPU_AT) }),
  },
  7: { 'a signature by the leaf': {} },
  8: {
    'the firmware id of a Blackwell, the first of two': { dice: tcbInfo(FIRMWARE_ID, zeros) },
    'a switch without firmware id': { device: 'LS_10 A01 FSP FMC LF', opaque: withoutFirmware },
  },
})

export const gpuRefusals = casesOf<'code', NvidiaCode, GpuCase>('code', {
  evidence_size: {
    '65,537 bytes': { replaced: { evidence: new Uint8Array(65_537) } },
    'a byte after the signature': { signed: (bytes) => Buffer.concat([bytes, Buffer.of(0)]) },
  },
  evidence_truncated: {
    'no byte': { replaced: { evidence: new Uint8Array() } },
    'a signature of 95 bytes': { signed: (bytes) => bytes.subarray(0, -1) },
  },
  spdm_request: {
    'another version': { evidence: setByte(0, 0x12) },
    'a request without signature': { evidence: setByte(2, 0) },
    'slot 8': { evidence: setByte(36, 8) },
  },
  spdm_response: {
    'an error': { evidence: setByte(38, 0x7f) },
    'a parameter': { evidence: setByte(40, 1) },
  },
  measurement_record: {
    'a block more than its bytes': { evidence: setByte(41, 4) },
    'a longer digest': { blocks: [...GPU_BLOCKS, measurementBlock(4, Buffer.alloc(64))] },
  },
  measurement_block: {
    'a block twice': { blocks: [measurementBlock(1), measurementBlock(1)] },
    'blocks from 2 on': { blocks: [measurementBlock(2)] },
    'a form that is not DMTF': { blocks: [measurementBlock(1).fill(2, 1, 2)] },
    'a size that is not the digest': { blocks: [measurementBlock(1).fill(50, 2, 3)] },
    'a digest of another length': { blocks: [measurementBlock(1).fill(32, 5, 6)] },
  },
  opaque_data: {
    'a field longer than the data': { opaque: [opaqueField(3, Buffer.from('1')).fill(9, 2, 3)] },
    'half a head': { opaque: [Buffer.of(3, 0)] },
    'a driver that is not a version': { opaque: [opaqueField(3, Buffer.from('<b>'))] },
    'a firmware id of 32 bytes': { opaque: [opaqueField(20, Buffer.alloc(32))] },
  },
  opaque_duplicate: {
    'two firmware ids': { opaque: [...GPU_OPAQUE, opaqueField(20, FIRMWARE_ID)] },
  },
  nonce_mismatch: { 'evidence for another nonce': { policy: { nonce: GPU_NONCE.with(31, 0) } } },
  pem_malformed: {
    'no certificates': { replaced: { certificates: '' } },
    'text after the certificates': {
      replaced: { certificates: `${buildGpu().evidence.certificates}x` },
    },
    'text after NULs': {
      replaced: { certificates: `${buildGpu().evidence.certificates}\0x` },
    },
  },
  root_untrusted: {
    'a development root under the default policy': { policy: { roots: [new Uint8Array(32)] } },
    'a chain without its root': { chain: (ders) => ders.slice(0, -1) },
  },
  chain_order: {
    "two authorities in each other's place": {
      chain: ([leafDer, third, second, ...rest]) =>
        [leafDer, second, third, ...rest].flatMap((der) => der ?? []),
    },
  },
  chain_repeated_certificate: {
    'an authority twice': {
      chain: (ders) => ders.flatMap((der, index) => (index === 2 ? [der, der] : [der])),
    },
  },
  certificate_signature_malformed: {
    'no signature': leaf({ sign: () => bitString(new Uint8Array()) }),
  },
  certificate_signature_invalid: {
    'a leaf that it signed itself': leaf({ sign: signWith(keyAt(4)) }),
  },
  certificate_der: {
    'a byte after the leaf': {
      chain: ([first = new Uint8Array(), ...rest]) => [
        Buffer.concat([first, Buffer.of(0)]),
        ...rest,
      ],
    },
  },
  certificate_version: { 'version 1': leaf({ version: null }) },
  certificate_algorithm_mismatch: {
    'SHA-256 outside': leaf({ outerAlgorithm: ECDSA_SHA256 }),
  },
  certificate_algorithm: {
    'SHA-256': leaf({ innerAlgorithm: ECDSA_SHA256, outerAlgorithm: ECDSA_SHA256 }),
  },
  certificate_key_type: {
    'another kind of key': leaf({
      publicKey: sequence(sequence(objectIdentifier('1.3.101.112')), bitString(new Uint8Array(32))),
    }),
  },
  certificate_curve: {
    'a leaf on P-256': leaf({ publicKey: publicKeyInfo(generateKey('P-256')) }),
  },
  certificate_point: {
    'a point on no curve': leaf({
      publicKey: publicKeyInfo(generateKey()).with(-1, 0).with(-2, 0),
    }),
  },
  certificate_duplicate_extension: {
    'two DICE extensions': leaf({
      extensions: [keyUsage(digitalSignature), compositeId(FIRMWARE_ID), compositeId(FIRMWARE_ID)],
    }),
  },
  certificate_critical_extension: {
    'a critical DICE extension': leaf({
      extensions: [extension('2.23.133.5.4.1', { critical: true, value: integer(1) })],
    }),
  },
  issuer_mismatch: { 'an unknown issuer': leaf({ issuer: nameOf('other') }) },
  ca_basic_constraints: {
    'an authority without': authority({ extensions: [keyUsage(keyCertSign)] }),
  },
  ca_key_usage: {
    'an authority that may not certify': authority({
      extensions: [authorityConstraints(null), keyUsage(digitalSignature)],
    }),
  },
  path_length_exceeded: {
    'an authority of leaves alone': authority({
      extensions: [authorityConstraints(0), keyUsage(keyCertSign)],
    }),
  },
  leaf_is_ca: {
    'a leaf that is a CA': leaf({
      extensions: [authorityConstraints(null), keyUsage(keyCertSign)],
    }),
  },
  leaf_key_usage: {
    'a leaf without digitalSignature': leaf({ extensions: [compositeId(FIRMWARE_ID)] }),
  },
  certificate_not_yet_valid: {
    'a leaf one second early': leaf({ validity: validityOf(seconds(1), seconds(9)) }),
  },
  certificate_expired: {
    'an authority one second late': authority({ validity: validityOf(seconds(-9), seconds(-1)) }),
  },
  signature_out_of_range: {
    'r of zero': {
      signed: (bytes) => bytes.fill(0, bytes.length - SIGNATURE_BYTES, bytes.length - 48),
    },
  },
  signature_invalid: {
    'a bit of a measurement': { signed: (bytes) => setByte(60, (bytes[60] ?? 0) ^ 1)(bytes) },
    'another key in the leaf': leaf({ publicKey: publicKeyInfo(generateKey()) }),
  },
  firmware_id_missing: { 'a GPU without firmware id': { opaque: withoutFirmware } },
  firmware_id_mismatch: {
    'other firmware than in the leaf': { dice: compositeId(nearly(FIRMWARE_ID)) },
    'other firmware in a Blackwell': { dice: tcbInfo(zeros, FIRMWARE_ID.with(0, 0)) },
    'zeros, as the second id of a Blackwell': {
      dice: tcbInfo(FIRMWARE_ID, zeros),
      opaque: [...withoutFirmware, opaqueField(20, zeros)],
    },
    'a leaf without firmware id': { dice: null },
    'a DICE extension that is not DER': {
      dice: extension('2.23.133.5.4.1', { critical: false, value: Uint8Array.of(0x30) }),
    },
  },
})
