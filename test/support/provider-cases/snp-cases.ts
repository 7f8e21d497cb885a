import { createSign } from 'node:crypto'
import type { SnpPolicy } from '#attestation/providers/snp/policy.ts'
import type { SnpCode, SnpRule } from '#attestation/providers/snp/snp-rules.ts'
import type { SnpEvidence } from '#attestation/providers/snp/verify-snp-report.ts'
import {
  authorityConstraints,
  type CertificateParts,
  ECDSA_SHA384,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  nameOf,
  publicKeyInfo,
  signWith,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { entry, type ListParts } from '../nitro-builder/crl-builder.ts'
import {
  bitString,
  encodeDer,
  integer,
  sequence,
  utf8String,
} from '../nitro-builder/der-encoder.ts'
import {
  AMD_TYPES,
  arkKey,
  askKey,
  buildSnpList,
  generateRsaKey,
  ia5String,
  PSS_SHA256,
  pssAlgorithm,
  pssWith,
  SNP_AT,
} from '../provider-builder/snp-pki.ts'
import {
  buildSnp,
  SNP_MEASUREMENT,
  SNP_TCBS,
  type SnpChange,
} from '../provider-builder/snp-report-builder.ts'

/** How a case is judged. */
type SnpCase = {
  readonly name: string
  readonly change?: SnpChange
  /** Changes the evidence after it was built. */
  readonly evidence?: Partial<SnpEvidence>
  readonly policy?: Partial<SnpPolicy>
  /** Default SNP_AT. */
  readonly at?: Date
}

/** Evidence that breaks one rule, and the code of its refusal. */
export type SnpRefusal = SnpCase & { readonly code: SnpCode }

/** Evidence at the edge of a rule that is still accepted. */
export type SnpAcceptance = SnpCase & { readonly rule: SnpRule }

/** The evidence and the policy of a case. */
export function caseOf({ change, evidence, policy }: SnpCase): {
  readonly evidence: SnpEvidence
  readonly policy: SnpPolicy
} {
  const built = buildSnp(change)
  return {
    evidence: { ...built.evidence, ...evidence },
    policy: { ...built.policy, ...policy },
  }
}

const { keyCertSign, cRLSign } = KEY_USAGE_BITS
const standard = buildSnp()
const { evidence: made } = standard
const seconds = (count: number) => new Date(SNP_AT.getTime() + 1000 * count)
const setByte = (offset: number, value: number) => (report: Buffer) => {
  report[offset] = value
}
const setBit = (offset: number, bit: number) => (report: Buffer) => {
  const at = offset + (bit >> 3)
  report[at] = (report[at] ?? 0) ^ (1 << (bit & 7))
}
const setClaim = (type: string, value: Uint8Array | null) => (values: Map<string, Uint8Array>) => {
  if (value === null) values.delete(type)
  else values.set(type, value)
}
const levels = ['ark', 'ask', 'vek'] as const
const milanRoot = nameOf('ARK-Milan')
const brokenPoint = publicKeyInfo(generateKey()).with(-1, 0).with(-2, 0)

const listed = (changed: Partial<ListParts> = {}) => ({ revocationList: buildSnpList(changed) })
const critical = (type: string) => [extension(type, { critical: true, value: integer(1) })]
const scope = (tag: number) => [
  extension('2.5.29.28', { critical: true, value: sequence(encodeDer(tag, Uint8Array.of(0xff))) }),
]
const vekOf = (vek: Partial<CertificateParts>): SnpChange => ({ vek })
const askOf = (ask: Partial<CertificateParts>): SnpChange => ({ ask })
const arkOf = (ark: Partial<CertificateParts>): SnpChange => ({ ark })
const pkcs1 = (signed: Uint8Array) =>
  bitString(createSign('sha384').update(signed).sign(askKey.privateKey))

export const snpAcceptances: readonly SnpAcceptance[] = [
  { rule: 1, name: 'a report of 1184 bytes' },
  ...[2, 3, 4, 5].map(
    (version): SnpAcceptance => ({ rule: 2, name: `version ${version}`, change: { version } }),
  ),
  ...[4, 5].map(
    (version): SnpAcceptance => ({
      rule: 3,
      name: `mitigation vectors in version ${version}`,
      change: {
        version,
        report: (report) => {
          report.fill(0xa5, 0x1f8, 0x208)
        },
      },
    }),
  ),
  {
    rule: 3,
    name: 'safe writes of the IOMMU, as Turin states them',
    change: { product: 'Turin', version: 5, report: setBit(0x40, 6) },
  },
  {
    rule: 3,
    name: 'the highest bits with a meaning',
    change: {
      report: (report) => {
        setBit(0x08, 25)(report)
        setBit(0x40, 7)(report)
      },
    },
  },
  { rule: 4, name: 'a report by a VLEK', change: { signer: 'VLEK' } },
  {
    rule: 5,
    name: 'a second trusted root',
    policy: { roots: { Milan: [new Uint8Array(32), ...(standard.policy.roots?.Milan ?? [])] } },
  },
  {
    rule: 6,
    name: 'PSS parameters without the default trailer',
    change: { ark: { innerAlgorithm: pssAlgorithm(), outerAlgorithm: pssAlgorithm() } },
  },
  {
    rule: 7,
    name: 'the authority of VLEKs, of Genoa',
    change: { signer: 'VLEK', product: 'Genoa' },
  },
  {
    rule: 8,
    name: 'an ARK that allows just one authority',
    change: arkOf({ extensions: [authorityConstraints(1), keyUsage(keyCertSign | cRLSign)] }),
  },
  {
    rule: 8,
    name: 'an ASK whose keyUsage is DER',
    change: askOf({ extensions: [authorityConstraints(0), keyUsage(keyCertSign)] }),
  },
  {
    rule: 9,
    name: 'the first second of a certificate',
    change: vekOf({ validity: validityOf(SNP_AT, seconds(9)) }),
  },
  {
    rule: 9,
    name: 'the last second of a certificate',
    change: askOf({ validity: validityOf(seconds(-9), SNP_AT) }),
  },
  { rule: 10, name: 'links by RSASSA-PSS with 48 bytes of salt' },
  { rule: 11, name: 'a list without the ASK', evidence: listed({ revoked: [entry(0x10002)] }) },
  { rule: 11, name: 'a list of authorities alone', evidence: listed({ extensions: scope(0x82) }) },
  { rule: 11, name: 'no list' },
  { rule: 12, name: 'a report that the VCEK signed' },
  ...(['Milan', 'Genoa', 'Turin'] as const).map(
    (product): SnpAcceptance => ({ rule: 13, name: product, change: { product } }),
  ),
  {
    rule: 13,
    name: 'Bergamo, a Genoa by its root',
    change: { product: 'Genoa', report: setByte(0x189, 0xa0) },
  },
  {
    rule: 14,
    name: 'a reported TCB below the current',
    change: {
      report: (report) => {
        setByte(0x38 + 6, 24)(report)
        setByte(0x1e0 + 6, 24)(report)
      },
    },
  },
  {
    rule: 15,
    name: 'a masked chip id',
    change: {
      report: (report) => {
        report.fill(0, 0x1a0, 0x1e0)
      },
    },
  },
  { rule: 15, name: 'the short hardware id of Turin', change: { product: 'Turin' } },
  {
    rule: 16,
    name: 'zeros for the report of a migration agent',
    change: {
      report: (report) => {
        report.fill(0, 0x160, 0x180)
      },
    },
  },
  {
    rule: 17,
    name: 'a report for VMPL 3 that was asked for',
    policy: { vmpl: 3 },
    change: { report: setByte(0x30, 3) },
  },
  { rule: 18, name: 'exactly the floor' },
  {
    rule: 19,
    name: 'the second measurement',
    policy: { measurements: [new Uint8Array(48), SNP_MEASUREMENT] },
  },
  { rule: 20, name: 'the host data that was asked for' },
  { rule: 21, name: 'the report data that was asked for' },
]

export const snpRefusals: readonly SnpRefusal[] = [
  { code: 'report_size', name: 'one byte less', evidence: { report: made.report.slice(0, -1) } },
  {
    code: 'report_size',
    name: 'one byte more',
    evidence: { report: Uint8Array.from([...made.report, 0]) },
  },
  { code: 'report_version', name: 'version 1', change: { version: 1 } },
  { code: 'report_version', name: 'version 6', change: { version: 6 } },
  ...(
    [
      [3, 0x4c],
      [3, 0x4f],
      [2, 0x188],
      [2, 0x19f],
      [3, 0x18b],
      [3, 0x19f],
      [3, 0x1eb],
      [3, 0x1ef],
      [3, 0x1f8],
      [3, 0x29f],
      [5, 0x208],
      [5, 0x29f],
    ] as const
  ).map(
    ([version, offset]): SnpRefusal => ({
      code: 'report_reserved',
      name: `byte ${offset} in version ${version}`,
      change: { version, report: setByte(offset, 1) },
    }),
  ),
  {
    code: 'report_reserved',
    name: 'the first byte after the signature',
    change: { signed: setByte(0x2a0 + 144, 1) },
  },
  { code: 'report_reserved', name: 'the last byte', change: { signed: setByte(1183, 1) } },
  { code: 'report_reserved', name: 'bit 5 of the key flags', change: { report: setBit(0x48, 5) } },
  { code: 'guest_policy_reserved', name: 'no bit 17', change: { report: setBit(0x08, 17) } },
  { code: 'guest_policy_reserved', name: 'bit 26', change: { report: setBit(0x08, 26) } },
  { code: 'guest_policy_reserved', name: 'bit 32', change: { report: setBit(0x08, 32) } },
  { code: 'platform_info_reserved', name: 'bit 8', change: { report: setBit(0x40, 8) } },
  { code: 'platform_info_reserved', name: 'bit 63', change: { report: setBit(0x40, 63) } },
  { code: 'signature_algorithm', name: 'algorithm 2', change: { report: setByte(0x34, 2) } },
  { code: 'signing_key', name: 'no key', change: { report: setByte(0x48, 7 << 2) } },
  { code: 'signing_key', name: 'a key of another kind', change: { report: setByte(0x48, 2 << 2) } },
  { code: 'signature_padding', name: 'a byte above r', change: { signed: setByte(0x2a0 + 48, 1) } },
  {
    code: 'signature_padding',
    name: 'a byte above s',
    change: { signed: setByte(0x2a0 + 143, 1) },
  },
  {
    code: 'signature_out_of_range',
    name: 'r of zero',
    change: {
      signed: (report) => {
        report.fill(0, 0x2a0, 0x2a0 + 48)
      },
    },
  },
  {
    code: 'signature_out_of_range',
    name: 's above n',
    change: {
      signed: (report) => {
        report.fill(0xff, 0x2e8, 0x2e8 + 48)
      },
    },
  },
  { code: 'certificate_size', name: 'no ASK', evidence: { ask: new Uint8Array() } },
  {
    code: 'certificate_size',
    name: 'a VCEK of 4097 bytes',
    evidence: { vek: new Uint8Array(4097) },
  },
  {
    code: 'root_untrusted',
    name: 'a root that the policy does not name',
    policy: { roots: { Milan: [new Uint8Array(32)] } },
  },
  {
    code: 'root_untrusted',
    name: 'a development root under the default policy',
    policy: { roots: { Milan: [] } },
  },
  {
    code: 'certificate_der',
    name: 'a byte after the VCEK',
    evidence: { vek: Uint8Array.from([...made.vek, 0]) },
  },
  {
    code: 'certificate_der',
    name: 'a keyUsage with two trailing zero bits',
    change: askOf({
      extensions: [
        authorityConstraints(0),
        extension('2.5.29.15', { critical: true, value: bitString(Uint8Array.of(keyCertSign), 0) }),
      ],
    }),
  },
  { code: 'certificate_version', name: 'version 1', change: vekOf({ version: null }) },
  {
    code: 'certificate_algorithm_mismatch',
    name: 'a trailer outside alone',
    change: vekOf({ outerAlgorithm: pssAlgorithm({ trailer: true }) }),
  },
  ...(
    [
      ['ECDSA', ECDSA_SHA384],
      ['SHA-256', PSS_SHA256],
      ['a salt of 32 bytes', pssAlgorithm({ salt: 32 })],
    ] as const
  ).flatMap(([name, algorithm]) =>
    levels.map(
      (level): SnpRefusal => ({
        code: 'certificate_algorithm',
        name: `${name} in the ${level}`,
        change: { [level]: { innerAlgorithm: algorithm, outerAlgorithm: algorithm } },
      }),
    ),
  ),
  {
    code: 'certificate_key_type',
    name: 'an ASK with a key on P-384',
    change: askOf({ publicKey: publicKeyInfo(generateKey()) }),
  },
  {
    code: 'certificate_key_type',
    name: 'a VCEK with an RSA key',
    change: vekOf({ publicKey: publicKeyInfo(askKey) }),
  },
  {
    code: 'certificate_curve',
    name: 'a VCEK on P-256',
    change: vekOf({ publicKey: publicKeyInfo(generateKey('P-256')) }),
  },
  {
    code: 'certificate_point',
    name: 'a VCEK whose point is on no curve',
    change: vekOf({ publicKey: brokenPoint }),
  },
  {
    code: 'certificate_rsa_key',
    name: 'an ASK of 2048 bits',
    change: askOf({ publicKey: publicKeyInfo(generateRsaKey(2048)) }),
  },
  {
    code: 'certificate_rsa_key',
    name: 'an ARK with the exponent 3',
    change: arkOf({ publicKey: withExponent(3) }),
  },
  {
    code: 'certificate_rsa_key',
    name: 'an even modulus',
    change: askOf({ publicKey: publicKeyInfo(askKey).with(-6, 0) }),
  },
  {
    code: 'certificate_duplicate_extension',
    name: 'two product names',
    change: vekOf({
      extensions: [1, 2].map(() =>
        extension(AMD_TYPES.product, { critical: false, value: ia5String('Milan-B0') }),
      ),
    }),
  },
  {
    code: 'certificate_critical_extension',
    name: 'a critical extension of AMD',
    change: vekOf({ extensions: critical(AMD_TYPES.tee) }),
  },
  {
    code: 'issuer_mismatch',
    name: 'a VCEK of another issuer',
    change: vekOf({ issuer: nameOf('SEV-Other') }),
  },
  {
    code: 'issuer_mismatch',
    name: 'an ASK of another issuer',
    change: askOf({ issuer: nameOf('ARK-Genoa') }),
  },
  { code: 'chain_order', name: 'a VCEK that names the ARK', change: vekOf({ issuer: milanRoot }) },
  {
    code: 'certificate_name',
    name: 'a VCEK for a report by a VLEK',
    change: { report: setByte(0x48, 1 << 2) },
  },
  {
    code: 'certificate_name',
    name: "the ASK of Genoa's name under Milan's root",
    change: { ask: { subject: nameOf('SEV-Genoa') }, vek: { issuer: nameOf('SEV-Genoa') } },
  },
  {
    code: 'certificate_name',
    name: 'a VCEK by the authority of VLEKs',
    change: {
      ask: { subject: nameOf('SEV-VLEK-Milan') },
      vek: { issuer: nameOf('SEV-VLEK-Milan') },
    },
  },
  {
    code: 'ca_basic_constraints',
    name: 'an ASK without',
    change: askOf({ extensions: [keyUsage(keyCertSign)] }),
  },
  {
    code: 'ca_key_usage',
    name: 'an ASK that may sign lists alone',
    change: askOf({ extensions: [authorityConstraints(0), keyUsage(cRLSign)] }),
  },
  {
    code: 'ca_key_usage',
    name: 'an ARK without keyUsage',
    change: arkOf({ extensions: [authorityConstraints(null)] }),
  },
  {
    code: 'path_length_exceeded',
    name: 'an ARK that allows no authority',
    change: arkOf({ extensions: [authorityConstraints(0), keyUsage(keyCertSign | cRLSign)] }),
  },
  {
    code: 'leaf_is_ca',
    name: 'a VCEK that is a CA',
    change: vekOf({ extensions: [authorityConstraints(null)] }),
  },
  {
    code: 'leaf_key_usage',
    name: 'a VCEK for certificates',
    change: vekOf({ extensions: [keyUsage(keyCertSign)] }),
  },
  ...levels.flatMap((level): readonly SnpRefusal[] => [
    {
      code: 'certificate_not_yet_valid',
      name: `the ${level}, one second early`,
      change: { [level]: { validity: validityOf(seconds(1), seconds(9)) } },
    },
    {
      code: 'certificate_expired',
      name: `the ${level}, one second late`,
      change: { [level]: { validity: validityOf(seconds(-9), seconds(-1)) } },
    },
  ]),
  {
    code: 'certificate_signature_invalid',
    name: 'a VCEK that the ARK signed',
    change: vekOf({ sign: pssWith(arkKey) }),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'an ASK that it signed itself',
    change: askOf({ sign: pssWith(askKey) }),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'a salt of 47 bytes',
    change: vekOf({ sign: pssWith(askKey, 47) }),
  },
  {
    code: 'certificate_signature_invalid',
    name: 'a salt of 49 bytes',
    change: vekOf({ sign: pssWith(askKey, 49) }),
  },
  { code: 'certificate_signature_invalid', name: 'PKCS #1 v1.5', change: vekOf({ sign: pkcs1 }) },
  {
    code: 'certificate_signature_invalid',
    name: 'an empty signature',
    change: vekOf({ sign: () => bitString(new Uint8Array()) }),
  },
  {
    code: 'revocation_list_malformed',
    name: 'no list in DER',
    evidence: { revocationList: Uint8Array.of(0x30, 0) },
  },
  {
    code: 'revocation_list_malformed',
    name: 'a list of 65,537 bytes',
    evidence: { revocationList: new Uint8Array(65_537) },
  },
  { code: 'revocation_list_malformed', name: 'no end', evidence: listed({ nextUpdate: null }) },
  {
    code: 'revocation_list_algorithm',
    name: 'ECDSA',
    evidence: listed({
      innerAlgorithm: ECDSA_SHA384,
      outerAlgorithm: ECDSA_SHA384,
      sign: signWith(generateKey()),
    }),
  },
  {
    code: 'revocation_list_unsupported',
    name: 'a delta',
    evidence: listed({ extensions: critical('2.5.29.27') }),
  },
  {
    code: 'revocation_list_unsupported',
    name: 'a list of ends alone',
    evidence: listed({ extensions: scope(0x81) }),
  },
  {
    code: 'revocation_list_foreign',
    name: 'a list of another ARK',
    evidence: listed({ issuer: nameOf('ARK-Genoa') }),
  },
  {
    code: 'revocation_list_foreign',
    name: 'an ARK that may not sign lists',
    change: arkOf({ extensions: [authorityConstraints(null), keyUsage(keyCertSign)] }),
    evidence: listed(),
  },
  {
    code: 'revocation_list_signature',
    name: 'a list that the ASK signed',
    evidence: listed({ sign: pssWith(askKey) }),
  },
  {
    code: 'revocation_list_not_yet_valid',
    name: 'a second early',
    evidence: listed({ thisUpdate: seconds(1) }),
  },
  {
    code: 'revocation_list_expired',
    name: 'a second late',
    evidence: listed({ nextUpdate: seconds(-1) }),
  },
  {
    code: 'certificate_revoked',
    name: 'the ASK',
    evidence: listed({ revoked: [entry(7), entry(0x10001)] }),
  },
  {
    code: 'signature_invalid',
    name: 'a bit of the report data',
    change: { signed: setBit(0x50, 0) },
  },
  {
    code: 'signature_invalid',
    name: 'the last signed byte of version 5',
    change: { version: 5, signed: setByte(0x207, 1) },
  },
  {
    code: 'signature_invalid',
    name: 'another key in the certificate',
    change: vekOf({ publicKey: publicKeyInfo(generateKey()) }),
  },
  {
    code: 'product_unknown',
    name: 'a processor before Milan',
    change: { report: setByte(0x188, 0x17) },
  },
  {
    code: 'product_unknown',
    name: 'a model between Genoa and Bergamo',
    change: { report: setByte(0x189, 0x20) },
  },
  {
    code: 'product_unknown',
    name: 'a certificate of another product',
    change: { claims: setClaim(AMD_TYPES.product, ia5String('Naples')) },
  },
  {
    code: 'product_malformed',
    name: 'no product name',
    change: { claims: setClaim(AMD_TYPES.product, null) },
  },
  {
    code: 'product_malformed',
    name: 'a product name in UTF-8',
    change: { claims: setClaim(AMD_TYPES.product, utf8String('Milan')) },
  },
  {
    code: 'product_mismatch',
    name: 'a Genoa certificate under the root of Milan',
    change: { claims: setClaim(AMD_TYPES.product, ia5String('Genoa')) },
  },
  {
    code: 'product_mismatch',
    name: 'a Genoa processor under the root of Milan',
    change: { report: setByte(0x189, 0x11) },
  },
  {
    code: 'provider_extension',
    name: 'a VCEK for a provider',
    change: { claims: setClaim(AMD_TYPES.provider, ia5String('cloud')) },
  },
  {
    code: 'provider_extension',
    name: 'a VLEK for no provider',
    change: { signer: 'VLEK', claims: setClaim(AMD_TYPES.provider, null) },
  },
  {
    code: 'provider_extension',
    name: 'a provider in UTF-8',
    change: { signer: 'VLEK', claims: setClaim(AMD_TYPES.provider, utf8String('cloud')) },
  },
  ...[0x38, 0x180, 0x1e0, 0x1f0].map(
    (offset): SnpRefusal => ({
      code: 'tcb_reserved',
      name: `the TCB at byte ${offset}`,
      change: { report: setByte(offset + 2, 1) },
    }),
  ),
  {
    code: 'tcb_reserved',
    name: 'a reserved byte of Turin',
    change: { product: 'Turin', report: setByte(0x38 + 4, 1) },
  },
  {
    code: 'tcb_extension',
    name: 'no microcode',
    change: { claims: setClaim(AMD_TYPES.microcode, null) },
  },
  {
    code: 'tcb_extension',
    name: 'microcode 256',
    change: { claims: setClaim(AMD_TYPES.microcode, integer(256)) },
  },
  {
    code: 'tcb_extension',
    name: 'a negative number',
    change: { claims: setClaim(AMD_TYPES.microcode, encodeDer(0x02, Uint8Array.of(0x80))) },
  },
  {
    code: 'tcb_extension',
    name: 'no INTEGER',
    change: { claims: setClaim(AMD_TYPES.microcode, Uint8Array.of(213)) },
  },
  {
    code: 'tcb_extension',
    name: 'fmc of a Milan',
    change: { claims: setClaim(AMD_TYPES.fmc, integer(0)) },
  },
  {
    code: 'tcb_extension',
    name: 'a Turin without fmc',
    change: { product: 'Turin', claims: setClaim(AMD_TYPES.fmc, null) },
  },
  ...(['bootloader', 'tee', 'snp', 'microcode'] as const).map(
    (part): SnpRefusal => ({
      code: 'tcb_mismatch',
      name: `${part} above the report`,
      change: { claims: setClaim(AMD_TYPES[part], integer(SNP_TCBS.Milan[part] + 1)) },
    }),
  ),
  {
    code: 'tcb_mismatch',
    name: 'snp below the report',
    change: { claims: setClaim(AMD_TYPES.snp, integer(22)) },
  },
  {
    code: 'tcb_mismatch',
    name: 'fmc of Turin',
    change: { product: 'Turin', claims: setClaim(AMD_TYPES.fmc, integer(2)) },
  },
  {
    code: 'chip_extension',
    name: 'a VCEK without hardware id',
    change: { claims: setClaim(AMD_TYPES.hardwareId, null) },
  },
  {
    code: 'chip_extension',
    name: 'a hardware id of 63 bytes',
    change: { claims: setClaim(AMD_TYPES.hardwareId, new Uint8Array(63).fill(0xc1)) },
  },
  {
    code: 'chip_extension',
    name: 'a hardware id inside an octet string',
    change: {
      claims: setClaim(AMD_TYPES.hardwareId, encodeDer(0x04, new Uint8Array(64).fill(0xc1))),
    },
  },
  {
    code: 'chip_extension',
    name: 'a VLEK with hardware id',
    change: {
      signer: 'VLEK',
      claims: setClaim(AMD_TYPES.hardwareId, new Uint8Array(64).fill(0xc1)),
    },
  },
  {
    code: 'chip_mismatch',
    name: 'the certificate of another chip',
    change: { claims: setClaim(AMD_TYPES.hardwareId, new Uint8Array(64).fill(0xc2)) },
  },
  {
    code: 'chip_mismatch',
    name: 'more than eight bytes of a Turin',
    change: { product: 'Turin', report: setByte(0x1a0 + 8, 1) },
  },
  { code: 'debug_allowed', name: 'bit 19', change: { report: setBit(0x08, 19) } },
  { code: 'migration_allowed', name: 'bit 18', change: { report: setBit(0x08, 18) } },
  {
    code: 'migration_agent',
    name: 'the report of an agent',
    change: { report: setByte(0x160, 1) },
  },
  { code: 'vmpl_unexpected', name: 'VMPL 1', change: { report: setByte(0x30, 1) } },
  {
    code: 'vmpl_unexpected',
    name: 'a report that the host asked for',
    change: {
      report: (report) => {
        report.fill(0xff, 0x30, 0x34)
      },
    },
  },
  { code: 'vmpl_unexpected', name: 'VMPL 0 for a policy of 2', policy: { vmpl: 2 } },
  {
    code: 'tcb_floor_missing',
    name: 'a floor of Genoa alone',
    policy: { floors: { Genoa: SNP_TCBS.Genoa } },
  },
  {
    code: 'tcb_below_floor',
    name: 'the reported TCB',
    policy: { floors: { Milan: { ...SNP_TCBS.Milan, microcode: 214 } } },
  },
  {
    code: 'tcb_below_floor',
    name: 'the committed TCB',
    change: { report: setByte(0x1e0 + 6, 22) },
  },
  { code: 'tcb_below_floor', name: 'the launch TCB', change: { report: setByte(0x1f0, 3) } },
  {
    code: 'tcb_below_floor',
    name: 'fmc of Turin',
    change: { product: 'Turin', report: setByte(0x1f0, 0) },
  },
  {
    code: 'measurement_mismatch',
    name: 'a bit of the measurement',
    change: { report: setBit(0x90, 3) },
  },
  {
    code: 'host_data_mismatch',
    name: 'a bit of the host data',
    change: { report: setBit(0xc0, 3) },
  },
  {
    code: 'report_data_mismatch',
    name: 'the last bit of the report data',
    change: { report: setBit(0x8f, 7) },
  },
]

/** The key of the ARK with another exponent of as many bytes. */
function withExponent(exponent: number): Uint8Array<ArrayBuffer> {
  return publicKeyInfo(arkKey).with(-1, exponent)
}
