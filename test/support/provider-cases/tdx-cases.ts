import type { TdxCheckName, TdxCode } from '#attestation/providers/tdx/tdx-codes.ts'
import type { TdxPolicy } from '#attestation/providers/tdx/tdx-policy.ts'
import type { TdxEvidence } from '#attestation/providers/tdx/verify-tdx-quote.ts'
import {
  authorityConstraints,
  ECDSA_SHA384,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  nameOf,
  publicKeyInfo,
  toPem,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { entry } from '../nitro-builder/crl-builder.ts'
import {
  boolean,
  encodeDer,
  integer,
  octetString,
  printableString,
  sequence,
} from '../nitro-builder/der-encoder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import {
  intelCertificate,
  pckExtensions,
  SERIALS,
  sgxExtension,
} from '../provider-builder/intel-pki.ts'
import {
  buildTdxEvidence,
  levelOf,
  moduleIdentity,
  platformTcb,
  type TdxChanges,
} from '../provider-builder/tdx-builder.ts'

/** Codes that the rules of nitro/rules.md give, and that a chain of Intel can have too. */
export type ChainCode =
  | 'root_untrusted'
  | 'chain_order'
  | 'certificate_der'
  | 'certificate_algorithm'
  | 'certificate_curve'
  | 'certificate_signature_invalid'
  | 'issuer_mismatch'
  | 'ca_basic_constraints'
  | 'ca_key_usage'
  | 'leaf_is_ca'
  | 'leaf_key_usage'
  | 'certificate_not_yet_valid'
  | 'certificate_expired'
  | 'certificate_revoked'
  | 'revocation_list_not_yet_valid'
  | 'revocation_list_expired'

type Verification = {
  readonly name: string
  readonly changes: TdxChanges
  readonly policy?: Partial<TdxPolicy>
  readonly at?: Date
}

/** Evidence that breaks one rule: its check fails with the code, no other check fails. */
export type TdxRefusal = Verification & {
  readonly code: TdxCode | ChainCode
  /** The check of a chain's code; a code of TDX_CODES names its own. */
  readonly check?: TdxCheckName
}

/** Evidence at the edge of a rule that is still accepted. */
export type TdxAcceptance = Verification & { readonly check: TdxCheckName }

export function evidenceOf({ changes }: Verification): TdxEvidence {
  return buildTdxEvidence(changes)
}

const DAY_MS = 24 * 3_600_000
const later = (days: number) => new Date(MADE_AT.getTime() + days * DAY_MS)
const otherKey = generateKey('P-256')
const { digitalSignature, keyCertSign, cRLSign } = KEY_USAGE_BITS

const put =
  (offset: number, ...bytes: readonly number[]) =>
  (target: Uint8Array): Uint8Array => {
    target.set(bytes, offset)
    return target
  }
const set = (offset: number, ...bytes: readonly number[]) => ({
  sealed: put(offset, ...bytes),
})
const inBody = (offset: number, ...bytes: readonly number[]) => ({
  body: (body: Uint8Array) => void put(offset, ...bytes)(body),
})
const inReport = (offset: number, ...bytes: readonly number[]) => ({
  qeReport: (report: Uint8Array) => void put(offset, ...bytes)(report),
})

/** Offsets in a quote of version 4. */
const AT = { dataSize: 632, type: 764, size: 766, authSize: 1218, chainType: 1252, chainSize: 1254 }

const formatRefusals: readonly TdxRefusal[] = [
  { code: 'quote_size', name: 'no bytes', changes: { sealed: () => new Uint8Array() } },
  {
    code: 'quote_size',
    name: 'a header alone',
    changes: { sealed: (quote) => quote.slice(0, 48) },
  },
  {
    code: 'quote_size',
    name: 'more bytes than allowed',
    changes: { sealed: (quote) => Buffer.concat([quote, new Uint8Array(32_768)]) },
  },
  { code: 'quote_version', name: 'version 3', changes: set(0, 3) },
  { code: 'quote_key_type', name: 'a key on P-384', changes: set(2, 3) },
  { code: 'quote_tee_type', name: 'a quote of SGX', changes: set(4, 0) },
  { code: 'quote_qe_vendor', name: 'another vendor', changes: set(12, 0x94) },
  {
    code: 'quote_body_type',
    name: 'a body of SGX',
    changes: { version: 5, ...set(48, 1) },
  },
  {
    code: 'quote_body_size',
    name: 'a body of TD 1.0 with the size of TD 1.5',
    changes: { version: 5, ...set(50, 0x88) },
  },
  {
    code: 'quote_truncated',
    name: 'a quote without its last byte',
    changes: { sealed: (quote) => quote.slice(0, -1) },
  },
  {
    code: 'quote_truncated',
    name: 'auth data beyond the end',
    changes: set(AT.authSize, 0xff, 0xff),
  },
  { code: 'quote_truncated', name: 'signature data of no bytes', changes: set(AT.dataSize, 0, 0) },
  { code: 'quote_certification_type', name: 'a type other than 6', changes: set(AT.type, 5) },
  {
    code: 'quote_certification_size',
    name: 'a size that is too small',
    changes: set(AT.size, 1, 0),
  },
  { code: 'quote_chain_type', name: 'an encrypted PPID', changes: set(AT.chainType, 3) },
  { code: 'quote_chain_size', name: 'a size that is too small', changes: set(AT.chainSize, 1, 0) },
  {
    code: 'pem_malformed',
    name: 'text in front of the PEM',
    changes: { pem: ` ${toPem(intelCertificate('pck'))}` },
  },
  { code: 'pem_malformed', name: 'a PEM without certificates', changes: { pem: '' } },
  {
    code: 'pem_malformed',
    name: 'base64 with unused bits',
    changes: { pem: '-----BEGIN CERTIFICATE-----\nAAB=\n-----END CERTIFICATE-----\n' },
  },
  {
    code: 'quote_chain_length',
    name: 'a chain without its root',
    changes: { pem: toPem(intelCertificate('pck'), intelCertificate('platformCa')) },
  },
]

const pck = (parts: NonNullable<TdxChanges['certificates']>['pck'] = {}) => ({
  certificates: { pck: parts },
})
const ca = (parts: NonNullable<TdxChanges['certificates']>['platformCa'] = {}) => ({
  certificates: { platformCa: parts },
})
const withSgx = (changed: Readonly<Record<string, Uint8Array>>) =>
  pck({ extensions: pckExtensions(sgxExtension(changed)) })
const chain = 'PCK chain'
const usage = keyUsage(keyCertSign | cRLSign)

const pckRefusals: readonly TdxRefusal[] = [
  {
    code: 'root_untrusted',
    check: chain,
    name: "Intel's root alone is trusted",
    changes: { collateral: () => null },
    policy: { roots: [new Uint8Array(32)] },
  },
  {
    code: 'chain_order',
    check: chain,
    name: 'the root stands between CA and leaf',
    changes: {
      pem: toPem(intelCertificate('pck'), intelCertificate('root'), intelCertificate('platformCa')),
    },
  },
  {
    code: 'certificate_der',
    check: chain,
    name: 'a leaf with a byte after it',
    changes: {
      pem: toPem(
        Buffer.concat([intelCertificate('pck'), Uint8Array.of(0)]),
        intelCertificate('platformCa'),
        intelCertificate('root'),
      ),
    },
  },
  {
    code: 'certificate_algorithm',
    check: chain,
    name: 'a leaf signed with SHA-384',
    changes: pck({ innerAlgorithm: ECDSA_SHA384, outerAlgorithm: ECDSA_SHA384 }),
  },
  {
    code: 'certificate_curve',
    check: chain,
    name: 'a leaf on P-384',
    changes: pck({ publicKey: publicKeyInfo(generateKey('P-384')) }),
  },
  {
    code: 'certificate_signature_invalid',
    check: chain,
    name: 'a leaf that another key of the CA signed',
    changes: { ...pck(), certificates: { platformCa: { publicKey: publicKeyInfo(otherKey) } } },
  },
  {
    code: 'issuer_mismatch',
    check: chain,
    name: 'a leaf of another issuer',
    changes: pck({ issuer: nameOf('Intel SGX PCK Processor CA') }),
  },
  {
    code: 'ca_basic_constraints',
    check: chain,
    name: 'a CA that is no CA',
    changes: ca({ extensions: [leafConstraints(), usage] }),
  },
  {
    code: 'ca_key_usage',
    check: chain,
    name: 'a CA that may not sign certificates',
    changes: ca({ extensions: [authorityConstraints(0), keyUsage(cRLSign)] }),
  },
  {
    code: 'leaf_is_ca',
    check: chain,
    name: 'a leaf that is a CA',
    changes: pck({ extensions: [authorityConstraints(0), keyUsage(digitalSignature)] }),
  },
  {
    code: 'leaf_key_usage',
    check: chain,
    name: 'a leaf that may not sign',
    changes: pck({ extensions: [leafConstraints(), keyUsage(keyCertSign)] }),
  },
  {
    code: 'certificate_not_yet_valid',
    check: chain,
    name: 'a leaf of tomorrow',
    changes: pck({ validity: validityOf(later(1), later(2)) }),
  },
  {
    code: 'certificate_expired',
    check: chain,
    name: 'a leaf of yesterday',
    changes: pck({ validity: validityOf(later(-2), later(-1)) }),
  },
  { code: 'pck_names', name: 'a leaf of another name', changes: pck({ subject: nameOf('Mine') }) },
  {
    code: 'pck_names',
    name: 'a CA of another name',
    changes: {
      certificates: {
        platformCa: { subject: nameOf('Intel SGX TCB Signing') },
        pck: { issuer: nameOf('Intel SGX TCB Signing') },
      },
    },
  },
  {
    code: 'pck_extension',
    name: 'a leaf without the extension',
    changes: pck({ extensions: [leafConstraints(), keyUsage(digitalSignature)] }),
  },
  {
    code: 'pck_extension',
    name: 'an FMSPC of 5 bytes',
    changes: withSgx({ 4: octetString(new Uint8Array(5)) }),
  },
  { code: 'pck_extension', name: 'a component of 256', changes: withSgx({ '2.1': integer(256) }) },
  {
    code: 'pck_extension',
    name: 'a negative component',
    changes: withSgx({ '2.1': encodeDer(2, Uint8Array.of(0xff)) }),
  },
  {
    code: 'pck_extension',
    name: 'a PCESVN that is a text',
    changes: withSgx({ '2.17': printableString('11') }),
  },
  {
    code: 'pck_extension',
    name: 'bytes that are not DER',
    changes: pck({ extensions: pckExtensions(Uint8Array.of(0x30, 0x80)) }),
  },
  {
    code: 'pck_extension',
    name: 'values that are not pairs',
    changes: pck({ extensions: pckExtensions(sequence(sequence(integer(1)))) }),
  },
  { code: 'qe_signature', name: 'a QE report by another key', changes: { qeSigner: otherKey } },
  {
    code: 'qe_signature',
    name: 'a signature of zeros',
    changes: { sealed: (quote) => quote.fill(0, 1154, 1218) },
  },
  {
    code: 'attestation_key_mismatch',
    name: 'the hash of another key',
    changes: { qeReport: (report) => report.fill(0, 320, 352) },
  },
  { code: 'attestation_key_mismatch', name: 'other auth data', changes: set(1220, 0x0b) },
  { code: 'qe_report_data_not_zero', name: 'a byte after the hash', changes: inReport(383, 1) },
  {
    code: 'attestation_key_point',
    name: 'a key that is not on the curve',
    changes: { point: new Uint8Array(64).fill(1) },
  },
  { code: 'quote_signature', name: 'a quote by another key', changes: { quoteSigner: otherKey } },
  { code: 'quote_signature', name: 'a changed register', changes: set(48 + 328, 1) },
  {
    code: 'quote_signature',
    name: 'a changed descriptor byte',
    changes: { version: 5, ...set(8, 1) },
  },
  {
    code: 'quote_signature',
    name: 'an s that is not below n',
    changes: { sealed: (quote) => quote.fill(0xff, 668, 700) },
  },
]

const list = 'revocation'
const hourBefore = new Date(MADE_AT.getTime() - 3_600_000)
const indicator = (type: string) => extension(type, { critical: true, value: integer(1) })
const replaced =
  (part: 'rootCrl' | 'pckCrl', bytes: Uint8Array): TdxChanges['collateral'] =>
  (collateral) => ({ ...collateral, [part]: bytes })

const listRefusals: readonly TdxRefusal[] = [
  {
    code: 'crl_malformed',
    name: 'a list of no bytes',
    changes: { collateral: replaced('pckCrl', new Uint8Array()) },
  },
  {
    code: 'crl_malformed',
    name: 'a list without an end',
    changes: { rootList: { nextUpdate: null } },
  },
  {
    code: 'crl_algorithm',
    name: 'a list signed with SHA-384',
    changes: { pckList: { innerAlgorithm: ECDSA_SHA384, outerAlgorithm: ECDSA_SHA384 } },
  },
  {
    code: 'crl_unsupported',
    name: 'a delta',
    changes: { pckList: { extensions: [indicator('2.5.29.27')] } },
  },
  {
    code: 'crl_foreign',
    name: 'a list of another issuer',
    changes: { pckList: { issuer: nameOf('Mine') } },
  },
  {
    code: 'crl_foreign',
    name: "the root's list in place of the CA's",
    changes: { collateral: (collateral) => ({ ...collateral, pckCrl: collateral.rootCrl }) },
  },
  {
    code: 'crl_signature',
    name: 'a forged list',
    changes: { rootList: { sign: () => encodeDer(3, Uint8Array.of(0, 0x30, 0)) } },
  },
  {
    code: 'crl_key_usage',
    name: 'a CA that may not sign lists',
    changes: ca({ extensions: [authorityConstraints(0), keyUsage(keyCertSign)] }),
  },
  {
    code: 'crl_scope',
    name: 'a list for CA certificates alone',
    changes: {
      pckList: {
        extensions: [
          extension('2.5.29.28', {
            critical: true,
            value: sequence(encodeDer(0x82, boolean(true).slice(2))),
          }),
        ],
      },
    },
  },
  {
    code: 'certificate_revoked',
    check: list,
    name: 'a revoked platform',
    changes: { pckList: { revoked: [entry(SERIALS.pck)] } },
  },
  {
    code: 'certificate_revoked',
    check: list,
    name: 'a revoked CA',
    changes: { rootList: { revoked: [entry(SERIALS.platformCa)] } },
  },
  {
    code: 'certificate_revoked',
    check: list,
    name: 'a revoked TCB signing key',
    changes: { rootList: { revoked: [entry(SERIALS.tcbSigning)] } },
  },
  {
    code: 'revocation_list_not_yet_valid',
    check: list,
    name: 'a list of tomorrow',
    changes: { pckList: { thisUpdate: later(1) } },
  },
  {
    code: 'revocation_list_expired',
    check: list,
    name: 'a list of yesterday',
    changes: { rootList: { thisUpdate: later(-2), nextUpdate: hourBefore } },
  },
]

const signing = (parts: NonNullable<TdxChanges['certificates']>['tcbSigning']) => ({
  certificates: { tcbSigning: parts },
})
/** Changes the QE identity alone, so that the TCB info stays right; or the other way. */
const tcbInfoAlone = (changes: TdxChanges): TdxChanges['collateral'] => {
  const { collateral } = buildTdxEvidence(changes)
  return (standard) => ({ ...standard, tcbInfo: collateral?.tcbInfo ?? standard.tcbInfo })
}
const identityAlone = (changes: TdxChanges): TdxChanges['collateral'] => {
  const { collateral } = buildTdxEvidence(changes)
  return (standard) => ({ ...standard, qeIdentity: collateral?.qeIdentity ?? standard.qeIdentity })
}

const textRefusals: readonly TdxRefusal[] = [
  {
    code: 'tcb_info_malformed',
    name: 'a level without components',
    changes: { tcbInfo: { tcbLevels: [levelOf({})] } },
  },
  {
    code: 'tcb_info_malformed',
    name: 'a status of no name',
    changes: { tcbInfo: { tcbLevels: [levelOf(platformTcb(), { tcbStatus: 'Fine' })] } },
  },
  {
    code: 'tcb_info_malformed',
    name: 'a day that does not exist',
    changes: { tcbInfo: { issueDate: '2026-02-30T00:00:00Z' } },
  },
  {
    code: 'tcb_info_malformed',
    name: 'a component of 256',
    changes: {
      tcbInfo: {
        tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: new Array(16).fill({ svn: 256 }) }))],
      },
    },
  },
  { code: 'tcb_info_id', name: 'a TCB info of SGX', changes: { tcbInfo: { id: 'SGX' } } },
  { code: 'tcb_info_id', name: 'a TCB info of version 2', changes: { tcbInfo: { version: 2 } } },
  { code: 'tcb_info_id', name: 'a TCB info of another type', changes: { tcbInfo: { tcbType: 1 } } },
  {
    code: 'tcb_info_signature',
    name: 'a TCB info by another key',
    changes: { collateral: tcbInfoAlone({ textSigner: otherKey }) },
  },
  {
    code: 'tcb_info_signature',
    name: 'a changed TCB info with the same value',
    changes: {
      collateral: (standard) => ({
        ...standard,
        tcbInfo: {
          ...standard.tcbInfo,
          signed: new Uint8Array([...standard.tcbInfo.signed, 0x20]),
        },
      }),
    },
  },
  {
    code: 'tcb_info_not_yet_valid',
    name: 'a TCB info of tomorrow',
    changes: { tcbInfo: { issueDate: '2026-03-05T00:00:00Z' } },
  },
  {
    code: 'tcb_info_expired',
    name: 'a TCB info of yesterday',
    changes: { tcbInfo: { nextUpdate: '2026-03-03T00:00:00Z' } },
  },
  {
    code: 'tcb_info_fmspc',
    name: 'a TCB info of another platform',
    changes: { tcbInfo: { fmspc: '90c06f000000' } },
  },
  {
    code: 'tcb_info_pce_id',
    name: 'a TCB info of another PCE',
    changes: { tcbInfo: { pceId: '0001' } },
  },
  {
    code: 'tcb_info_too_old',
    name: 'a TCB info before a recovery',
    changes: { tcbInfo: { tcbEvaluationDataNumber: 17 } },
  },
  {
    code: 'tcb_signing_names',
    name: 'a TCB info that a PCK certificate signed',
    changes: {
      collateral: tcbInfoAlone(signing({ subject: nameOf('Intel SGX PCK Certificate') })),
    },
  },
  {
    code: 'pem_malformed',
    check: 'TCB info',
    name: 'an issuer chain that is no PEM',
    changes: { collateral: tcbInfoAlone({ issuerChain: 'none' }) },
  },
  {
    code: 'certificate_expired',
    check: 'TCB info',
    name: 'a TCB signing certificate of yesterday',
    changes: { collateral: tcbInfoAlone(signing({ validity: validityOf(later(-2), later(-1)) })) },
  },
  {
    code: 'root_untrusted',
    check: 'QE identity',
    name: 'a TCB signing chain with another root',
    changes: { collateral: identityAlone({ certificates: { root: { serial: integer(9) } } }) },
  },
  {
    code: 'qe_identity_malformed',
    name: 'an MRSIGNER of 31 bytes',
    changes: { qeIdentity: { mrsigner: '00'.repeat(31) } },
  },
  {
    code: 'qe_identity_id',
    name: 'the identity of the QE of SGX',
    changes: { qeIdentity: { id: 'QE' } },
  },
  {
    code: 'qe_identity_id',
    name: 'an identity of version 1',
    changes: { qeIdentity: { version: 1 } },
  },
  {
    code: 'qe_identity_signature',
    name: 'an identity by another key',
    changes: { collateral: identityAlone({ textSigner: otherKey }) },
  },
  {
    code: 'qe_identity_not_yet_valid',
    name: 'an identity of tomorrow',
    changes: { qeIdentity: { issueDate: '2026-03-05T00:00:00Z' } },
  },
  {
    code: 'qe_identity_expired',
    name: 'an identity of yesterday',
    changes: { qeIdentity: { nextUpdate: '2026-03-03T00:00:00Z' } },
  },
  {
    code: 'qe_identity_too_old',
    name: 'an identity before a recovery',
    changes: { qeIdentity: { tcbEvaluationDataNumber: 17 } },
  },
]

const onePlatformStatus = (tcbStatus: string, advisoryIDs: readonly string[] = []) => ({
  tcbInfo: { tcbLevels: [levelOf(platformTcb(), { tcbStatus, advisoryIDs })] },
})
const withModule = (changed: Readonly<Record<string, unknown>>) => ({
  tcbInfo: { tdxModuleIdentities: [moduleIdentity(changed)] },
})
const svns = (...values: readonly number[]) =>
  Array.from({ length: 16 }, (_, index) => ({ svn: values[index] ?? 0 }))

const tcbRefusals: readonly TdxRefusal[] = [
  { code: 'qe_mr_signer', name: 'an enclave of another signer', changes: inReport(128, 0) },
  { code: 'qe_prod_id', name: 'another enclave of Intel', changes: inReport(256, 1) },
  { code: 'qe_misc_select', name: 'another MISCSELECT', changes: inReport(16, 1) },
  { code: 'qe_attributes', name: 'a debugged quoting enclave', changes: inReport(48, 0x13) },
  { code: 'qe_level_missing', name: 'an enclave below every level', changes: inReport(258, 3) },
  {
    code: 'tcb_level_missing',
    name: 'a component of SGX below every level',
    changes: withSgx({ '2.1': integer(2) }),
  },
  {
    code: 'tcb_level_missing',
    name: 'a PCESVN below every level',
    changes: withSgx({ '2.17': integer(10) }),
  },
  {
    code: 'tcb_level_missing',
    name: 'a component of TDX below every level',
    changes: inBody(2, 6),
  },
  { code: 'tcb_level_missing', name: 'no levels', changes: { tcbInfo: { tcbLevels: [] } } },
  {
    code: 'tcb_level_missing',
    name: 'a module of version 0 below every level',
    changes: {
      ...inBody(0, 4, 0),
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  { code: 'module_identity_missing', name: 'a module of version 3', changes: inBody(0, 5, 3) },
  {
    code: 'module_identity_missing',
    name: 'no identities',
    changes: { tcbInfo: { tdxModuleIdentities: [] } },
  },
  { code: 'module_mr_signer', name: 'a module of another signer', changes: inBody(64, 1) },
  { code: 'module_attributes', name: 'a module with attributes', changes: inBody(112, 1) },
  {
    code: 'module_mr_signer',
    name: 'a module of version 0 of another signer',
    changes: {
      body: (body) => {
        put(0, 5, 0)(body)
        put(64, 1)(body)
      },
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  { code: 'module_level_missing', name: 'a module below every level', changes: inBody(0, 4) },
  {
    code: 'tcb_revoked',
    name: 'a revoked platform',
    changes: onePlatformStatus('Revoked'),
    policy: { statuses: ['OutOfDate'] },
  },
  {
    code: 'tcb_status_not_accepted',
    name: 'an outdated platform',
    changes: onePlatformStatus('OutOfDate'),
  },
  {
    code: 'tcb_status_not_accepted',
    name: 'an outdated module',
    changes: withModule({ tcbLevels: [levelOf({ isvsvn: 5 }, { tcbStatus: 'OutOfDate' })] }),
  },
  {
    code: 'tcb_status_not_accepted',
    name: 'an outdated quoting enclave under a policy for hardening',
    changes: { qeIdentity: { tcbLevels: [levelOf({ isvsvn: 4 }, { tcbStatus: 'OutOfDate' })] } },
    policy: { statuses: ['SWHardeningNeeded'] },
  },
  {
    code: 'tcb_advisory_not_accepted',
    name: 'an advisory that is not named',
    changes: onePlatformStatus('SWHardeningNeeded', ['INTEL-SA-00615', 'INTEL-SA-00837']),
    policy: { statuses: ['SWHardeningNeeded'], advisories: ['INTEL-SA-00615'] },
  },
]

const tdRefusals: readonly TdxRefusal[] = [
  { code: 'td_debug', name: 'a debugged TD', changes: inBody(120, 1) },
  { code: 'td_debug', name: 'another bit of the first byte', changes: inBody(120, 2) },
  { code: 'td_attributes_forbidden', name: 'a TD that may migrate', changes: inBody(123, 0x30) },
  { code: 'td_attributes_forbidden', name: 'a reserved bit', changes: inBody(124, 1) },
  {
    code: 'td_attributes_missing',
    name: 'a TD without SEPT_VE_DISABLE',
    changes: inBody(123, 0x40),
  },
  { code: 'xfam_forbidden', name: 'an unknown feature', changes: inBody(128, 0xe7, 0x06) },
  { code: 'xfam_missing', name: 'a TD without SSE', changes: inBody(128, 0xe5) },
  {
    code: 'service_td',
    name: 'a bound service TD',
    changes: { version: 5, tdVersion: '1.5', ...inBody(600, 1) },
  },
  { code: 'measurement_mismatch', name: 'another firmware', changes: inBody(136, 0) },
  {
    code: 'measurement_mismatch',
    name: 'one of two values differs',
    changes: {},
    policy: { measurements: [{ rtmr0: new Uint8Array(48), rtmr3: new Uint8Array(48).fill(1) }] },
  },
  { code: 'report_data_mismatch', name: 'other report data', changes: inBody(583, 0) },
]

export const tdxRefusals: readonly TdxRefusal[] = [
  ...formatRefusals,
  ...pckRefusals,
  ...listRefusals,
  ...textRefusals,
  ...tcbRefusals,
  ...tdRefusals,
]

export const tdxAcceptances: readonly TdxAcceptance[] = [
  { check: 'format', name: 'a quote of version 4', changes: {} },
  { check: 'format', name: 'a quote of version 5, TD 1.0', changes: { version: 5 } },
  {
    check: 'format',
    name: 'bytes after the end',
    changes: { sealed: (quote) => Buffer.concat([quote, new Uint8Array(3065).fill(7)]) },
  },
  {
    check: 'format',
    name: 'a chain that ends in NUL, with CRLF',
    changes: {
      pem: `${toPem(intelCertificate('pck'), intelCertificate('platformCa'), intelCertificate('root')).replaceAll('\n', '\r\n')}\0`,
    },
  },
  {
    check: 'PCK chain',
    name: 'a certificate of the Processor CA',
    changes: {
      certificates: {
        platformCa: { subject: nameOf('Intel SGX PCK Processor CA') },
        pck: { issuer: nameOf('Intel SGX PCK Processor CA') },
      },
      pckList: { issuer: nameOf('Intel SGX PCK Processor CA') },
    },
  },
  { check: 'QE report', name: 'a report with another CPUSVN', changes: inReport(0, 9) },
  { check: 'attestation key', name: 'a key of its own', changes: { attestationKey: otherKey } },
  {
    check: 'quote signature',
    name: 'a quote of version 5, TD 1.5',
    changes: { version: 5, tdVersion: '1.5' },
  },
  {
    check: 'TCB info',
    name: 'on the first and on the last moment',
    changes: { tcbInfo: { issueDate: '2026-03-04T05:06:07Z', nextUpdate: '2026-03-04T05:06:07Z' } },
  },
  { check: 'TCB info', name: 'a member that is not known', changes: { tcbInfo: { note: 'new' } } },
  {
    check: 'QE identity',
    name: 'a newer evaluation number',
    changes: { qeIdentity: { tcbEvaluationDataNumber: 19 } },
  },
  {
    check: 'revocation',
    name: 'other certificates are revoked',
    changes: {
      pckList: { revoked: [entry(1), entry(2)] },
      rootList: { revoked: [entry(SERIALS.pck)] },
    },
  },
  { check: 'quoting enclave', name: 'attributes outside the mask', changes: inReport(56, 0xe7) },
  { check: 'quoting enclave', name: 'an enclave above the level', changes: inReport(258, 9) },
  {
    check: 'platform TCB',
    name: 'the second level',
    changes: {
      tcbInfo: {
        tcbLevels: [
          levelOf(platformTcb({ pcesvn: 12 })),
          levelOf(platformTcb(), { tcbStatus: 'SWHardeningNeeded' }),
        ],
      },
    },
    policy: { statuses: ['SWHardeningNeeded'] },
  },
  {
    check: 'platform TCB',
    name: 'a level of another version of the module',
    changes: {
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(9, 9, 7) }))] },
    },
  },
  {
    check: 'TDX module',
    name: 'a module of version 0',
    changes: {
      ...inBody(0, 5, 0),
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  {
    check: 'TCB status',
    name: 'an accepted status with an accepted advisory',
    changes: onePlatformStatus('SWHardeningNeeded', ['INTEL-SA-00615']),
    policy: { statuses: ['SWHardeningNeeded'], advisories: ['INTEL-SA-00615'] },
  },
  { check: 'TD attributes', name: 'PKS and PERFMON', changes: inBody(123, 0x50, 0, 0, 0, 0x80) },
  {
    check: 'TD attributes',
    name: 'other rules',
    changes: inBody(123, 0),
    policy: { tdAttributes: { required: 0n, allowed: 0n } },
  },
  { check: 'XFAM', name: 'x87 and SSE alone', changes: inBody(128, 3, 0, 0) },
  {
    check: 'service TD',
    name: 'a report of TD 1.5 without one',
    changes: { version: 5, tdVersion: '1.5' },
  },
  {
    check: 'measurements',
    name: 'the second set',
    changes: {},
    policy: { measurements: [{ mrTd: new Uint8Array(48) }, { rtmr3: new Uint8Array(48) }] },
  },
  { check: 'report data', name: 'the expected report data', changes: {} },
]

/** Policies that are errors of the call. */
export const brokenTdxPolicies: readonly (readonly [string, unknown])[] = [
  ['an empty list of measurements', { measurements: [] }],
  ['an empty set of measurements', { measurements: [{}] }],
  ['a set with an unknown name', { measurements: [{ rtmr4: new Uint8Array(48) }] }],
  ['a measurement of 32 bytes', { measurements: [{ mrTd: new Uint8Array(32) }] }],
  ['no measurements', {}],
  ['an unknown option', { measurements: 'any', debug: true }],
  ['report data of null', { measurements: 'any', reportData: null }],
  ['report data of 32 bytes', { measurements: 'any', reportData: new Uint8Array(32) }],
  ['Revoked as accepted', { measurements: 'any', statuses: ['Revoked'] }],
  ['an unknown status', { measurements: 'any', statuses: ['Fine'] }],
  ['advisories that are no list', { measurements: 'any', advisories: 'INTEL-SA-00615' }],
  ['a floor that is a text', { measurements: 'any', evaluationNumberMin: '18' }],
  ['rules that are numbers', { measurements: 'any', xfam: { required: 3, allowed: 7 } }],
  ['no roots', { measurements: 'any', roots: [] }],
]
