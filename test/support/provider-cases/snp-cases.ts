import { createSign } from 'node:crypto'
import type { SnpPolicy } from '#attestation/providers/snp/policy.ts'
import type { SnpCode, SnpRule } from '#attestation/providers/snp/snp-rules.ts'
import type { SnpEvidence } from '#attestation/providers/snp/verify-snp-report.ts'
import { casesOf } from '../case-table.ts'
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
type SnpCase = SnpChange & {
  /** Changes the evidence after it was built. */
  readonly evidence?: Partial<SnpEvidence>
  readonly policy?: Partial<SnpPolicy>
  /** Default SNP_AT. */
  readonly at?: Date
}

/** Evidence that breaks one rule, and the code of its refusal. */
export type SnpRefusal = SnpCase & { readonly name: string; readonly code: SnpCode }

/** Evidence at the edge of a rule that is still accepted. */
export type SnpAcceptance = SnpCase & { readonly name: string; readonly rule: SnpRule }

/** The evidence and the policy of a case. */
export function caseOf({ evidence, policy, ...change }: SnpCase): {
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
const fill = (value: number, from: number, to: number) => (report: Buffer) =>
  void report.fill(value, from, to)
/** A certificate of the report's key with another value of an extension of AMD, or without it. */
const claim = (name: keyof typeof AMD_TYPES, value: Uint8Array | null): SnpChange => ({
  claims: (values) => {
    if (value === null) values.delete(AMD_TYPES[name])
    else values.set(AMD_TYPES[name], value)
  },
})
const CHIP_ID = new Uint8Array(64).fill(0xc1)
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
  ...casesOf<'rule', SnpRule, SnpCase>('rule', {
    1: { 'a report of 1184 bytes': {} },
    3: {
      'safe writes of the IOMMU, as Turin states them': {
        product: 'Turin',
        version: 5,
        report: setBit(0x40, 6),
      },
      'the highest bits with a meaning': {
        report: (report) => {
          setBit(0x08, 25)(report)
          setBit(0x40, 7)(report)
        },
      },
    },
    4: { 'a report by a VLEK': { signer: 'VLEK' } },
    5: {
      'a second trusted root': {
        policy: { roots: { Milan: [new Uint8Array(32), ...(standard.policy.roots?.Milan ?? [])] } },
      },
    },
    6: {
      'PSS parameters without the default trailer': {
        ark: { innerAlgorithm: pssAlgorithm(), outerAlgorithm: pssAlgorithm() },
      },
    },
    7: { 'the authority of VLEKs, of Genoa': { signer: 'VLEK', product: 'Genoa' } },
    8: {
      'an ARK that allows just one authority': arkOf({
        extensions: [authorityConstraints(1), keyUsage(keyCertSign | cRLSign)],
      }),
      'an ASK whose keyUsage is DER': askOf({
        extensions: [authorityConstraints(0), keyUsage(keyCertSign)],
      }),
    },
    9: {
      'the first second of a certificate': vekOf({ validity: validityOf(SNP_AT, seconds(9)) }),
      'the last second of a certificate': askOf({ validity: validityOf(seconds(-9), SNP_AT) }),
    },
    10: { 'links by RSASSA-PSS with 48 bytes of salt': {} },
    11: {
      'a list without the ASK': { evidence: listed({ revoked: [entry(0x10002)] }) },
      'a list of authorities alone': { evidence: listed({ extensions: scope(0x82) }) },
      'no list': {},
    },
    12: { 'a report that the VCEK signed': {} },
    13: {
      'Bergamo, a Genoa by its root': { product: 'Genoa', report: setByte(0x189, 0xa0) },
    },
    14: {
      'a reported TCB below the current': {
        report: (report) => {
          setByte(0x38 + 6, 24)(report)
          setByte(0x1e0 + 6, 24)(report)
        },
      },
    },
    15: {
      'a masked chip id': { report: fill(0, 0x1a0, 0x1e0) },
      'the short hardware id of Turin': { product: 'Turin' },
    },
    16: { 'zeros for the report of a migration agent': { report: fill(0, 0x160, 0x180) } },
    17: {
      'a report for VMPL 3 that was asked for': { report: setByte(0x30, 3), policy: { vmpl: 3 } },
    },
    18: { 'exactly the floor': {} },
    19: {
      'the second measurement': { policy: { measurements: [new Uint8Array(48), SNP_MEASUREMENT] } },
    },
    20: { 'the host data that was asked for': {} },
    21: { 'the report data that was asked for': {} },
    22: { 'firmware that is committed': { policy: { needsCommitted: true } } },
    23: {
      'the bits that the report has': {
        policy: { platform: { smt: true, aliasCheck: true, tsme: false } },
      },
    },
    24: {
      'the second chip': { policy: { chipIds: [new Uint8Array(64).fill(1), CHIP_ID] } },
      'the chip that a report by a VLEK states': { signer: 'VLEK', policy: { chipIds: [CHIP_ID] } },
    },
  }),
  ...[2, 3, 4, 5].map(
    (version): SnpAcceptance => ({ version, rule: 2, name: `version ${version}` }),
  ),
  ...[4, 5].map(
    (version): SnpAcceptance => ({
      version,
      report: fill(0xa5, 0x1f8, 0x208),
      rule: 3,
      name: `mitigation vectors in version ${version}`,
    }),
  ),
  ...(['Milan', 'Genoa', 'Turin'] as const).map(
    (product): SnpAcceptance => ({ product, rule: 13, name: product }),
  ),
]

export const snpRefusals: readonly SnpRefusal[] = [
  ...casesOf<'code', SnpCode, SnpCase>('code', {
    report_size: {
      'one byte less': { evidence: { report: made.report.slice(0, -1) } },
      'one byte more': { evidence: { report: Uint8Array.from([...made.report, 0]) } },
    },
    report_version: {
      'version 1': { version: 1 },
      'version 6': { version: 6 },
    },
    report_reserved: {
      'the first byte after the signature': { signed: setByte(0x2a0 + 144, 1) },
      'the last byte': { signed: setByte(1183, 1) },
      'bit 5 of the key flags': { report: setBit(0x48, 5) },
    },
    guest_policy_reserved: {
      'no bit 17': { report: setBit(0x08, 17) },
      'bit 26': { report: setBit(0x08, 26) },
      'bit 32': { report: setBit(0x08, 32) },
    },
    platform_info_reserved: {
      'bit 8': { report: setBit(0x40, 8) },
      'bit 63': { report: setBit(0x40, 63) },
    },
    signature_algorithm: { 'algorithm 2': { report: setByte(0x34, 2) } },
    signing_key: {
      'no key': { report: setByte(0x48, 7 << 2) },
      'a key of another kind': { report: setByte(0x48, 2 << 2) },
    },
    signature_padding: {
      'a byte above r': { signed: setByte(0x2a0 + 48, 1) },
      'a byte above s': { signed: setByte(0x2a0 + 143, 1) },
    },
    signature_out_of_range: {
      'r of zero': { signed: fill(0, 0x2a0, 0x2a0 + 48) },
      's above n': { signed: fill(0xff, 0x2e8, 0x2e8 + 48) },
    },
    certificate_size: {
      'no ASK': { evidence: { ask: new Uint8Array() } },
      'a VCEK of 4097 bytes': { evidence: { vek: new Uint8Array(4097) } },
    },
    root_untrusted: {
      'a root that the policy does not name': {
        policy: { roots: { Milan: [new Uint8Array(32)] } },
      },
      'a development root under the default policy': { policy: { roots: { Milan: [] } } },
    },
    certificate_der: {
      'a byte after the VCEK': { evidence: { vek: Uint8Array.from([...made.vek, 0]) } },
      'a keyUsage with two trailing zero bits': askOf({
        extensions: [
          authorityConstraints(0),
          extension('2.5.29.15', {
            critical: true,
            value: bitString(Uint8Array.of(keyCertSign), 0),
          }),
        ],
      }),
    },
    certificate_version: { 'version 1': vekOf({ version: null }) },
    certificate_algorithm_mismatch: {
      'a trailer outside alone': vekOf({ outerAlgorithm: pssAlgorithm({ trailer: true }) }),
    },
    certificate_key_type: {
      'an ASK with a key on P-384': askOf({ publicKey: publicKeyInfo(generateKey()) }),
      'a VCEK with an RSA key': vekOf({ publicKey: publicKeyInfo(askKey) }),
    },
    certificate_curve: {
      'a VCEK on P-256': vekOf({ publicKey: publicKeyInfo(generateKey('P-256')) }),
    },
    certificate_point: {
      'a VCEK whose point is on no curve': vekOf({ publicKey: brokenPoint }),
    },
    certificate_rsa_key: {
      'an ASK of 2048 bits': askOf({ publicKey: publicKeyInfo(generateRsaKey(2048)) }),
      'an ARK with the exponent 3': arkOf({ publicKey: withExponent(3) }),
      'an even modulus': askOf({ publicKey: publicKeyInfo(askKey).with(-6, 0) }),
    },
    certificate_duplicate_extension: {
      'two product names': vekOf({
        extensions: [1, 2].map(() =>
          extension(AMD_TYPES.product, { critical: false, value: ia5String('Milan-B0') }),
        ),
      }),
    },
    certificate_critical_extension: {
      'a critical extension of AMD': vekOf({ extensions: critical(AMD_TYPES.tee) }),
    },
    issuer_mismatch: {
      'a VCEK of another issuer': vekOf({ issuer: nameOf('SEV-Other') }),
      'an ASK of another issuer': askOf({ issuer: nameOf('ARK-Milam') }),
    },
    chain_order: { 'a VCEK that names the ARK': vekOf({ issuer: milanRoot }) },
    certificate_name: {
      'a VCEK for a report by a VLEK': { report: setByte(0x48, 1 << 2) },
      "the ASK of Genoa's name under Milan's root": {
        ask: { subject: nameOf('SEV-Genoa') },
        vek: { issuer: nameOf('SEV-Genoa') },
      },
      'a VCEK by the authority of VLEKs': {
        ask: { subject: nameOf('SEV-VLEK-Milan') },
        vek: { issuer: nameOf('SEV-VLEK-Milan') },
      },
    },
    ca_basic_constraints: {
      'an ASK without': askOf({ extensions: [keyUsage(keyCertSign)] }),
    },
    ca_key_usage: {
      'an ASK that may sign lists alone': askOf({
        extensions: [authorityConstraints(0), keyUsage(cRLSign)],
      }),
      'an ARK without keyUsage': arkOf({ extensions: [authorityConstraints(null)] }),
    },
    path_length_exceeded: {
      'an ARK that allows no authority': arkOf({
        extensions: [authorityConstraints(0), keyUsage(keyCertSign | cRLSign)],
      }),
    },
    leaf_is_ca: {
      'a VCEK that is a CA': vekOf({ extensions: [authorityConstraints(null)] }),
    },
    leaf_key_usage: {
      'a VCEK for certificates': vekOf({ extensions: [keyUsage(keyCertSign)] }),
    },
    certificate_signature_invalid: {
      'a VCEK that the ARK signed': vekOf({ sign: pssWith(arkKey) }),
      'an ASK that it signed itself': askOf({ sign: pssWith(askKey) }),
      'a salt of 47 bytes': vekOf({ sign: pssWith(askKey, 47) }),
      'a salt of 49 bytes': vekOf({ sign: pssWith(askKey, 49) }),
      'PKCS #1 v1.5': vekOf({ sign: pkcs1 }),
      'an empty signature': vekOf({ sign: () => bitString(new Uint8Array()) }),
    },
    revocation_list_malformed: {
      'no list in DER': { evidence: { revocationList: Uint8Array.of(0x30, 0) } },
      'a list of 65,537 bytes': { evidence: { revocationList: new Uint8Array(65_537) } },
      'no end': { evidence: listed({ nextUpdate: null }) },
    },
    revocation_list_algorithm: {
      ECDSA: {
        evidence: listed({
          innerAlgorithm: ECDSA_SHA384,
          outerAlgorithm: ECDSA_SHA384,
          sign: signWith(generateKey()),
        }),
      },
    },
    revocation_list_unsupported: {
      'a delta': { evidence: listed({ extensions: critical('2.5.29.27') }) },
      'a list of ends alone': { evidence: listed({ extensions: scope(0x81) }) },
    },
    revocation_list_foreign: {
      'a list of another ARK': { evidence: listed({ issuer: nameOf('ARK-Milam') }) },
      'an ARK that may not sign lists': {
        ...arkOf({ extensions: [authorityConstraints(null), keyUsage(keyCertSign)] }),
        evidence: listed(),
      },
    },
    revocation_list_signature: {
      'a list that the ASK signed': { evidence: listed({ sign: pssWith(askKey) }) },
    },
    revocation_list_not_yet_valid: {
      'a second early': { evidence: listed({ thisUpdate: seconds(1) }) },
    },
    revocation_list_expired: { 'a second late': { evidence: listed({ nextUpdate: seconds(-1) }) } },
    certificate_revoked: {
      'the ASK': { evidence: listed({ revoked: [entry(7), entry(0x10001)] }) },
    },
    signature_invalid: {
      'a bit of the report data': { signed: setBit(0x50, 0) },
      'the last signed byte of version 5': { version: 5, signed: setByte(0x207, 1) },
      'another key in the certificate': vekOf({ publicKey: publicKeyInfo(generateKey()) }),
    },
    product_unknown: {
      'a processor before Milan': { report: setByte(0x188, 0x17) },
      'a model between Genoa and Bergamo': { report: setByte(0x189, 0x20) },
      'a certificate of another product': claim('product', ia5String('Naples')),
    },
    product_malformed: {
      'no product name': claim('product', null),
      'a product name in UTF-8': claim('product', utf8String('Milan')),
    },
    product_mismatch: {
      'a Genoa certificate under the root of Milan': claim('product', ia5String('Genoa')),
      'a Genoa processor under the root of Milan': { report: setByte(0x189, 0x11) },
    },
    provider_extension: {
      'a VCEK for a provider': claim('provider', ia5String('cloud')),
      'a VLEK for no provider': { signer: 'VLEK', ...claim('provider', null) },
      'a provider in UTF-8': {
        signer: 'VLEK',
        ...claim('provider', utf8String('cloud')),
      },
    },
    tcb_reserved: {
      'a reserved byte of Turin': { product: 'Turin', report: setByte(0x38 + 4, 1) },
    },
    tcb_extension: {
      'no microcode': claim('microcode', null),
      'microcode 256': claim('microcode', integer(256)),
      'a negative number': claim('microcode', encodeDer(0x02, Uint8Array.of(0x80))),
      'no INTEGER': claim('microcode', Uint8Array.of(213)),
      'fmc of a Milan': claim('fmc', integer(0)),
      'a Turin without fmc': { product: 'Turin', ...claim('fmc', null) },
    },
    tcb_mismatch: {
      'snp below the report': claim('snp', integer(22)),
      'fmc of Turin': { product: 'Turin', ...claim('fmc', integer(2)) },
    },
    chip_extension: {
      'a VCEK without hardware id': claim('hardwareId', null),
      'a hardware id of 63 bytes': claim('hardwareId', new Uint8Array(63).fill(0xc1)),
      'a hardware id inside an octet string': claim(
        'hardwareId',
        encodeDer(0x04, new Uint8Array(64).fill(0xc1)),
      ),
      'a VLEK with hardware id': {
        signer: 'VLEK',
        ...claim('hardwareId', new Uint8Array(64).fill(0xc1)),
      },
    },
    chip_mismatch: {
      'the certificate of another chip': claim(
        'hardwareId',
        new Uint8Array(64).fill(0xc1).with(63, 0xc2),
      ),
      'more than eight bytes of a Turin': { product: 'Turin', report: setByte(0x1a0 + 8, 1) },
    },
    debug_allowed: { 'bit 19': { report: setBit(0x08, 19) } },
    migration_allowed: { 'bit 18': { report: setBit(0x08, 18) } },
    migration_agent: { 'the report of an agent': { report: setByte(0x160, 1) } },
    vmpl_unexpected: {
      'VMPL 1': { report: setByte(0x30, 1) },
      'a report that the host asked for': { report: fill(0xff, 0x30, 0x34) },
      'VMPL 0 for a policy of 2': { policy: { vmpl: 2 } },
    },
    tcb_floor_missing: {
      'a floor of Genoa alone': { policy: { floors: { Genoa: SNP_TCBS.Genoa } } },
    },
    tcb_below_floor: {
      'the reported TCB': { policy: { floors: { Milan: { ...SNP_TCBS.Milan, microcode: 214 } } } },
      'the committed TCB': { report: setByte(0x1e0 + 6, 22) },
      'the launch TCB': { report: setByte(0x1f0, 3) },
      'fmc of Turin': { product: 'Turin', report: setByte(0x1f0, 0) },
    },
    measurement_mismatch: { 'a bit of the measurement': { report: setBit(0xbf, 3) } },
    host_data_mismatch: { 'a bit of the host data': { report: setBit(0xdf, 3) } },
    report_data_mismatch: {
      'the last bit of the report data': { report: setBit(0x8f, 7) },
    },
    firmware_provisional: {
      'a current TCB above the committed by its last byte': {
        report: setByte(0x3f, 214),
        policy: { needsCommitted: true },
      },
      'current firmware above the committed by its build': {
        report: setByte(0x1e8, 30),
        policy: { needsCommitted: true },
      },
    },
    platform_info_not_accepted: {
      'a memory whose aliases were not checked': {
        report: setBit(0x40, 5),
        policy: { platform: { aliasCheck: true } },
      },
      'SMT where none is accepted': { policy: { platform: { ecc: true, smt: false } } },
    },
    chip_not_accepted: {
      'an id that differs in its last byte': { policy: { chipIds: [CHIP_ID.with(63, 0xc2)] } },
      'a masked id': { report: fill(0, 0x1a0, 0x1e0), policy: { chipIds: [CHIP_ID] } },
    },
  }),
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
      version,
      report: setByte(offset, 1),
      code: 'report_reserved',
      name: `byte ${offset} in version ${version}`,
    }),
  ),
  ...(
    [
      ['ECDSA', ECDSA_SHA384],
      ['SHA-256', PSS_SHA256],
      ['a salt of 32 bytes', pssAlgorithm({ salt: 32 })],
    ] as const
  ).flatMap(([name, algorithm]) =>
    levels.map(
      (level): SnpRefusal => ({
        [level]: { innerAlgorithm: algorithm, outerAlgorithm: algorithm },
        code: 'certificate_algorithm',
        name: `${name} in the ${level}`,
      }),
    ),
  ),
  ...levels.flatMap((level): readonly SnpRefusal[] => [
    {
      [level]: { validity: validityOf(seconds(1), seconds(9)) },
      code: 'certificate_not_yet_valid',
      name: `the ${level}, one second early`,
    },
    {
      [level]: { validity: validityOf(seconds(-9), seconds(-1)) },
      code: 'certificate_expired',
      name: `the ${level}, one second late`,
    },
  ]),
  ...[0x38, 0x180, 0x1e0, 0x1f0].map(
    (offset): SnpRefusal => ({
      report: setByte(offset + 2, 1),
      code: 'tcb_reserved',
      name: `the TCB at byte ${offset}`,
    }),
  ),
  ...(['bootloader', 'tee', 'snp', 'microcode'] as const).map(
    (part): SnpRefusal => ({
      ...claim(part, integer(SNP_TCBS.Milan[part] + 1)),
      code: 'tcb_mismatch',
      name: `${part} above the report`,
    }),
  ),
]

/** The key of the ARK with another exponent of as many bytes. */
function withExponent(exponent: number): Uint8Array<ArrayBuffer> {
  return publicKeyInfo(arkKey).with(-1, exponent)
}
