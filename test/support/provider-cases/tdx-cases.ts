import type { TdxCheckName, TdxCode } from '#attestation/providers/tdx/tdx-codes.ts'
import type { TdxPolicy } from '#attestation/providers/tdx/tdx-policy.ts'
import { FMSPC } from '#src/local/tee/intel-pki.ts'
import { type CaseTable, casesOf, nearly } from '../case-table.ts'
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

/**
 * Codes of nitro/rules.md that show that these rules are applied to a chain of Intel, with its curve
 * and its algorithm. nitro-cases and gpu-cases have a case for each code of a chain.
 */
export type ChainCode =
  | 'root_untrusted'
  | 'certificate_algorithm'
  | 'certificate_curve'
  | 'certificate_expired'
  | 'certificate_revoked'
  | 'revocation_list_not_yet_valid'
  | 'revocation_list_expired'

type TdxCase = TdxChanges & {
  readonly policy?: Partial<TdxPolicy>
  readonly at?: Date
  /** The check that fails with a code that is not of TDX_CODES; default the PCK chain. */
  readonly check?: TdxCheckName
}

const DAY_MS = 24 * 3_600_000
const later = (days: number) => new Date(MADE_AT.getTime() + days * DAY_MS)
const otherKey = generateKey('P-256')
const { digitalSignature, keyCertSign } = KEY_USAGE_BITS

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

const formatRefusals: CaseTable<TdxCode, TdxCase> = {
  quote_size: {
    'no bytes': { sealed: () => new Uint8Array() },
    'a header alone': { sealed: (quote) => quote.slice(0, 48) },
    'more bytes than allowed': {
      sealed: (quote) => Buffer.concat([quote, new Uint8Array(32_768)]),
    },
  },
  quote_version: { 'version 3': set(0, 3) },
  quote_key_type: { 'a key on P-384': set(2, 3) },
  quote_tee_type: { 'a quote of SGX': set(4, 0) },
  quote_qe_vendor: { 'another vendor': set(12, 0x94), 'another last byte': set(27, 0) },
  quote_body_type: { 'a body of SGX': { version: 5, ...set(48, 1) } },
  quote_body_size: {
    'a body of TD 1.0 with the size of TD 1.5': { version: 5, ...set(50, 0x88) },
  },
  quote_truncated: {
    'a quote without its last byte': { sealed: (quote) => quote.slice(0, -1) },
    'auth data beyond the end': set(AT.authSize, 0xff, 0xff),
    'signature data of no bytes': set(AT.dataSize, 0, 0),
  },
  quote_certification_type: { 'a type other than 6': set(AT.type, 5) },
  quote_certification_size: { 'a size that is too small': set(AT.size, 1, 0) },
  quote_chain_type: { 'an encrypted PPID': set(AT.chainType, 3) },
  quote_chain_size: { 'a size that is too small': set(AT.chainSize, 1, 0) },
  pem_malformed: {
    'text in front of the PEM': { pem: ` ${toPem(intelCertificate('pck'))}` },
    'a PEM without certificates': { pem: '' },
    'NULs alone': { pem: '\0\0' },
    'a NUL amid the PEM': {
      pem: toPem(intelCertificate('pck'), intelCertificate('root')).replace(
        '\n-----BEGIN',
        '\0\n-----BEGIN',
      ),
    },
    'base64 with unused bits': {
      pem: '-----BEGIN CERTIFICATE-----\nAAB=\n-----END CERTIFICATE-----\n',
    },
  },
  quote_chain_length: {
    'a chain without its root': {
      pem: toPem(intelCertificate('pck'), intelCertificate('platformCa')),
    },
  },
}

const pck = (parts: NonNullable<TdxChanges['certificates']>['pck'] = {}) => ({
  certificates: { pck: parts },
})
const ca = (parts: NonNullable<TdxChanges['certificates']>['platformCa'] = {}) => ({
  certificates: { platformCa: parts },
})
const withSgx = (changed: Readonly<Record<string, Uint8Array>>) =>
  pck({ extensions: pckExtensions(sgxExtension(changed)) })

const pckRefusals: CaseTable<TdxCode | ChainCode, TdxCase> = {
  root_untrusted: {
    "Intel's root alone is trusted": {
      collateral: () => null,
      policy: { roots: [new Uint8Array(32)] },
    },
  },
  certificate_algorithm: {
    'a leaf signed with SHA-384': pck({
      innerAlgorithm: ECDSA_SHA384,
      outerAlgorithm: ECDSA_SHA384,
    }),
  },
  certificate_curve: {
    'a leaf on P-384': pck({ publicKey: publicKeyInfo(generateKey('P-384')) }),
  },
  certificate_expired: {
    'a leaf of yesterday': pck({ validity: validityOf(later(-2), later(-1)) }),
  },
  pck_names: {
    'a leaf of another name': pck({ subject: nameOf('Mine') }),
    'a CA of another name': {
      certificates: {
        platformCa: { subject: nameOf('Intel SGX TCB Signing') },
        pck: { issuer: nameOf('Intel SGX TCB Signing') },
      },
    },
  },
  pck_extension: {
    'a leaf without the extension': pck({
      extensions: [leafConstraints(), keyUsage(digitalSignature)],
    }),
    'an FMSPC of 5 bytes': withSgx({ 4: octetString(new Uint8Array(5)) }),
    'a component of 256': withSgx({ '2.1': integer(256) }),
    'a negative component': withSgx({ '2.1': encodeDer(2, Uint8Array.of(0xff)) }),
    'a PCESVN that is a text': withSgx({ '2.17': printableString('11') }),
    'bytes that are not DER': pck({ extensions: pckExtensions(Uint8Array.of(0x30, 0x80)) }),
    'values that are not pairs': pck({
      extensions: pckExtensions(sequence(sequence(integer(1)))),
    }),
  },
  qe_signature: {
    'a QE report by another key': { qeSigner: otherKey },
    'a signature of zeros': { sealed: (quote) => quote.fill(0, 1154, 1218) },
  },
  attestation_key_mismatch: {
    'a hash that differs in its last bit': {
      qeReport: (report) => report.set(nearly(report, 351)),
    },
    'other auth data': set(1220, 0x0b),
  },
  qe_report_data_not_zero: { 'a byte after the hash': inReport(383, 1) },
  attestation_key_point: {
    'a key that is not on the curve': { point: new Uint8Array(64).fill(1) },
  },
  quote_signature: {
    'a quote by another key': { quoteSigner: otherKey },
    'a changed register': set(48 + 328, 1),
    'a changed descriptor byte': { version: 5, ...set(8, 1) },
    'an s that is not below n': { sealed: (quote) => quote.fill(0xff, 668, 700) },
  },
}

const list = 'revocation'
const hourBefore = new Date(MADE_AT.getTime() - 3_600_000)
const indicator = (type: string) => extension(type, { critical: true, value: integer(1) })
const replaced =
  (part: 'rootCrl' | 'pckCrl', bytes: Uint8Array): TdxChanges['collateral'] =>
  (collateral) => ({ ...collateral, [part]: bytes })

const listRefusals: CaseTable<TdxCode | ChainCode, TdxCase> = {
  crl_malformed: {
    'a list in hexadecimal text with an odd digit': {
      collateral: replaced('rootCrl', Buffer.from('30821')),
    },
    'a list of no bytes': { collateral: replaced('pckCrl', new Uint8Array()) },
    'a list without an end': { rootList: { nextUpdate: null } },
  },
  crl_algorithm: {
    'a list signed with SHA-384': {
      pckList: { innerAlgorithm: ECDSA_SHA384, outerAlgorithm: ECDSA_SHA384 },
    },
  },
  crl_unsupported: {
    'a delta': { pckList: { extensions: [indicator('2.5.29.27')] } },
  },
  crl_foreign: {
    'a list of another issuer': { pckList: { issuer: nameOf('Mine') } },
    "the root's list in place of the CA's": {
      collateral: (collateral) => ({ ...collateral, pckCrl: collateral.rootCrl }),
    },
  },
  crl_signature: {
    'a forged list': { rootList: { sign: () => encodeDer(3, Uint8Array.of(0, 0x30, 0)) } },
  },
  crl_key_usage: {
    'a CA that may not sign lists': ca({
      extensions: [authorityConstraints(0), keyUsage(keyCertSign)],
    }),
  },
  crl_scope: {
    'a list for CA certificates alone': {
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
  certificate_revoked: {
    'a revoked platform': { pckList: { revoked: [entry(SERIALS.pck)] }, check: list },
    'a revoked CA': { rootList: { revoked: [entry(SERIALS.platformCa)] }, check: list },
    'a revoked TCB signing key': {
      rootList: { revoked: [entry(SERIALS.tcbSigning)] },
      check: list,
    },
  },
  revocation_list_not_yet_valid: {
    'a list of tomorrow': { pckList: { thisUpdate: later(1) }, check: list },
  },
  revocation_list_expired: {
    'a list of yesterday': {
      rootList: { thisUpdate: later(-2), nextUpdate: hourBefore },
      check: list,
    },
  },
}

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

const numbersAlone = (changes: TdxChanges): TdxChanges['collateral'] => {
  const { collateral } = buildTdxEvidence(changes)
  return (standard) => ({ ...standard, evaluationNumbers: collateral?.evaluationNumbers ?? null })
}
const offered = (...numbers: readonly (readonly [number, string])[]) => ({
  evaluationNumbers: {
    tcbEvalNumbers: numbers.map(([tcbEvaluationDataNumber, date]) => ({
      tcbEvaluationDataNumber,
      tcbRecoveryEventDate: date,
      tcbDate: date,
    })),
  },
})

const textRefusals: CaseTable<TdxCode | ChainCode, TdxCase> = {
  tcb_info_malformed: {
    'a level without components': { tcbInfo: { tcbLevels: [levelOf({})] } },
    'a status of no name': {
      tcbInfo: { tcbLevels: [levelOf(platformTcb(), { tcbStatus: 'Fine' })] },
    },
    'a day that does not exist': { tcbInfo: { issueDate: '2026-02-30T00:00:00Z' } },
    'a component of 256': {
      tcbInfo: {
        tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: new Array(16).fill({ svn: 256 }) }))],
      },
    },
  },
  tcb_info_id: {
    'a TCB info of SGX': { tcbInfo: { id: 'SGX' } },
    'a TCB info of version 2': { tcbInfo: { version: 2 } },
    'a TCB info of another type': { tcbInfo: { tcbType: 1 } },
  },
  tcb_info_signature: {
    'a TCB info by another key': { collateral: tcbInfoAlone({ textSigner: otherKey }) },
    'a changed TCB info with the same value': {
      collateral: (standard) => ({
        ...standard,
        tcbInfo: {
          ...standard.tcbInfo,
          signed: new Uint8Array([...standard.tcbInfo.signed, 0x20]),
        },
      }),
    },
  },
  tcb_info_not_yet_valid: {
    'a TCB info of tomorrow': { tcbInfo: { issueDate: '2026-03-05T00:00:00Z' } },
  },
  tcb_info_expired: {
    'a TCB info of yesterday': { tcbInfo: { nextUpdate: '2026-03-03T00:00:00Z' } },
  },
  tcb_info_fmspc: {
    'a TCB info of another platform': { tcbInfo: { fmspc: '90c06f000000' } },
  },
  tcb_info_pce_id: { 'a TCB info of another PCE': { tcbInfo: { pceId: '0001' } } },
  tcb_info_too_old: {
    'a TCB info before a recovery': { tcbInfo: { tcbEvaluationDataNumber: 17 } },
  },
  tcb_signing_names: {
    'a TCB info that a PCK certificate signed': {
      collateral: tcbInfoAlone(signing({ subject: nameOf('Intel SGX PCK Certificate') })),
    },
  },
  pem_malformed: {
    'an issuer chain that is no PEM': {
      collateral: tcbInfoAlone({ issuerChain: 'none' }),
      check: 'TCB info',
    },
  },
  certificate_expired: {
    'a TCB signing certificate of yesterday': {
      collateral: tcbInfoAlone(signing({ validity: validityOf(later(-2), later(-1)) })),
      check: 'TCB info',
    },
  },
  root_untrusted: {
    'a TCB signing chain with another root': {
      collateral: identityAlone({ certificates: { root: { serial: integer(9) } } }),
      check: 'QE identity',
    },
  },
  qe_identity_malformed: {
    'an MRSIGNER of 31 bytes': { qeIdentity: { mrsigner: '00'.repeat(31) } },
  },
  qe_identity_id: {
    'the identity of the QE of SGX': { qeIdentity: { id: 'QE' } },
    'an identity of version 1': { qeIdentity: { version: 1 } },
  },
  qe_identity_signature: {
    'an identity by another key': { collateral: identityAlone({ textSigner: otherKey }) },
  },
  qe_identity_not_yet_valid: {
    'an identity of tomorrow': { qeIdentity: { issueDate: '2026-03-05T00:00:00Z' } },
  },
  qe_identity_expired: {
    'an identity of yesterday': { qeIdentity: { nextUpdate: '2026-03-03T00:00:00Z' } },
  },
  qe_identity_too_old: {
    'an identity before a recovery': { qeIdentity: { tcbEvaluationDataNumber: 17 } },
  },
  evaluation_numbers_malformed: {
    'no numbers': { evaluationNumbers: { tcbEvalNumbers: [] } },
    'a recovery without a time': offered([19, '2026-01-01']),
  },
  evaluation_numbers_id: {
    'the numbers of SGX': { evaluationNumbers: { id: 'SGX' } },
    'numbers of version 2': { evaluationNumbers: { version: 2 } },
  },
  evaluation_numbers_signature: {
    'numbers by another key': { collateral: numbersAlone({ textSigner: otherKey }) },
  },
  evaluation_numbers_not_yet_valid: {
    'numbers of tomorrow': { evaluationNumbers: { issueDate: '2026-03-05T00:00:00Z' } },
  },
  evaluation_numbers_expired: {
    'numbers of yesterday': { evaluationNumbers: { nextUpdate: '2026-03-03T00:00:00Z' } },
  },
  evaluation_number_old: {
    'a number whose successor is as old as the policy accepts': {
      ...offered([19, '2025-03-04T05:06:07Z'], [18, '2024-11-12T00:00:00Z']),
      policy: { evaluationNumberDays: 365 },
    },
    'an identity of an older number than the TCB info': {
      ...offered([19, '2024-11-12T00:00:00Z']),
      tcbInfo: { tcbEvaluationDataNumber: 19 },
    },
  },
}

const onePlatformStatus = (tcbStatus: string, advisoryIDs: readonly string[] = []) => ({
  tcbInfo: { tcbLevels: [levelOf(platformTcb(), { tcbStatus, advisoryIDs })] },
})
const withModule = (changed: Readonly<Record<string, unknown>>) => ({
  tcbInfo: { tdxModuleIdentities: [moduleIdentity(changed)] },
})
const svns = (...values: readonly number[]) =>
  Array.from({ length: 16 }, (_, index) => ({ svn: values[index] ?? 0 }))

const tcbRefusals: CaseTable<TdxCode, TdxCase> = {
  qe_mr_signer: { 'an enclave of another signer': inReport(128, 0) },
  qe_prod_id: { 'another enclave of Intel': inReport(256, 1) },
  qe_misc_select: { 'another MISCSELECT': inReport(16, 1) },
  qe_attributes: { 'a debugged quoting enclave': inReport(48, 0x13) },
  qe_level_missing: { 'an enclave below every level': inReport(258, 3) },
  tcb_level_missing: {
    'a component of SGX below every level': withSgx({ '2.1': integer(2) }),
    'a PCESVN below every level': withSgx({ '2.17': integer(10) }),
    'a component of TDX below every level': inBody(2, 6),
    'no levels': { tcbInfo: { tcbLevels: [] } },
    'a module of version 0 below every level': {
      ...inBody(0, 4, 0),
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  module_identity_missing: {
    'a module of version 3': inBody(0, 5, 3),
    'no identities': { tcbInfo: { tdxModuleIdentities: [] } },
  },
  module_mr_signer: {
    'a module of another signer': inBody(64, 1),
    'a module of version 0 of another signer': {
      body: (body) => {
        put(0, 5, 0)(body)
        put(64, 1)(body)
      },
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  module_attributes: { 'a module with attributes': inBody(112, 1) },
  module_level_missing: { 'a module below every level': inBody(0, 4) },
  tcb_revoked: {
    'a revoked platform': { ...onePlatformStatus('Revoked'), policy: { statuses: ['OutOfDate'] } },
  },
  tcb_status_not_accepted: {
    'an outdated platform': onePlatformStatus('OutOfDate'),
    'an outdated module': withModule({
      tcbLevels: [levelOf({ isvsvn: 5 }, { tcbStatus: 'OutOfDate' })],
    }),
    'an outdated quoting enclave under a policy for hardening': {
      qeIdentity: { tcbLevels: [levelOf({ isvsvn: 4 }, { tcbStatus: 'OutOfDate' })] },
      policy: { statuses: ['SWHardeningNeeded'] },
    },
  },
  tcb_advisory_not_accepted: {
    'an advisory of the platform and one of the module': {
      ...withModule({
        tcbLevels: [
          levelOf(
            { isvsvn: 5 },
            { tcbStatus: 'OutOfDate', advisoryIDs: ['INTEL-SA-01036', 'INTEL-SA-00837'] },
          ),
        ],
      }),
      policy: { statuses: ['OutOfDate'] },
    },
    'an advisory that is not named': {
      ...onePlatformStatus('SWHardeningNeeded', ['INTEL-SA-00615', 'INTEL-SA-00837']),
      policy: { statuses: ['SWHardeningNeeded'], advisories: ['INTEL-SA-00615'] },
    },
  },
}

const tdRefusals: CaseTable<TdxCode, TdxCase> = {
  fmspc_not_accepted: {
    'an FMSPC that differs in its last digit': { policy: { fmspcs: ['b0c06f000001'] } },
  },
  td_debug: {
    'a debugged TD': inBody(120, 1),
    'another bit of the first byte': inBody(120, 2),
  },
  td_attributes_forbidden: {
    'a TD that may migrate': inBody(123, 0x30),
    'a reserved bit': inBody(124, 1),
  },
  td_attributes_missing: { 'a TD without SEPT_VE_DISABLE': inBody(123, 0x40) },
  xfam_forbidden: { 'an unknown feature': inBody(128, 0xe7, 0x06) },
  xfam_missing: { 'a TD without SSE': inBody(128, 0xe5) },
  service_td: {
    'a bound service TD': { version: 5, tdVersion: '1.5', ...inBody(600, 1) },
  },
  measurement_mismatch: {
    'another firmware': inBody(136, 0),
    'firmware that differs in its last bit': {
      body: (body) => body.set(nearly(body, 183)),
    },
    'one of two values differs': {
      policy: { measurements: [{ rtmr0: new Uint8Array(48), rtmr3: new Uint8Array(48).fill(1) }] },
    },
  },
  report_data_mismatch: { 'other report data': inBody(583, 0) },
}

/** Evidence that breaks one rule: its check fails with the code, no other check fails. */
export const tdxRefusals = [
  formatRefusals,
  pckRefusals,
  listRefusals,
  textRefusals,
  tcbRefusals,
  tdRefusals,
].flatMap((table) => casesOf<'code', TdxCode | ChainCode, TdxCase>('code', table))

/** Evidence at the edge of a rule that is still accepted. */
export const tdxAcceptances = casesOf<'check', TdxCheckName, TdxCase>('check', {
  format: {
    'a quote of version 4': {},
    'a quote of version 5, TD 1.0': { version: 5 },
    'bytes after the end': {
      sealed: (quote) => Buffer.concat([quote, new Uint8Array(3065).fill(7)]),
    },
    'a chain that ends in five NULs': {
      pem: `${toPem(intelCertificate('pck'), intelCertificate('platformCa'), intelCertificate('root'))}\0\0\0\0\0`,
    },
    'a chain that ends in NUL, with CRLF': {
      pem: `${toPem(intelCertificate('pck'), intelCertificate('platformCa'), intelCertificate('root')).replaceAll('\n', '\r\n')}\0`,
    },
  },
  'PCK chain': {
    'a certificate of the Processor CA': {
      certificates: {
        platformCa: { subject: nameOf('Intel SGX PCK Processor CA') },
        pck: { issuer: nameOf('Intel SGX PCK Processor CA') },
      },
      pckList: { issuer: nameOf('Intel SGX PCK Processor CA') },
    },
  },
  'QE report': { 'a report with another CPUSVN': inReport(0, 9) },
  'attestation key': { 'a key of its own': { attestationKey: otherKey } },
  'quote signature': {
    'a quote of version 5, TD 1.5': { version: 5, tdVersion: '1.5' },
  },
  'TCB info': {
    'on the first and on the last moment': {
      tcbInfo: { issueDate: '2026-03-04T05:06:07Z', nextUpdate: '2026-03-04T05:06:07Z' },
    },
    'a member that is not known': { tcbInfo: { note: 'new' } },
  },
  'QE identity': {
    'a newer evaluation number': { qeIdentity: { tcbEvaluationDataNumber: 19 } },
  },
  'evaluation numbers': {
    'numbers of the first and the last moment': {
      evaluationNumbers: {
        issueDate: '2026-03-04T05:06:07Z',
        nextUpdate: '2026-03-04T05:06:07Z',
      },
    },
  },
  'evaluation number': {
    'a number whose successor is a second younger than the policy accepts': {
      ...offered([19, '2025-03-04T05:06:08Z'], [18, '2024-11-12T00:00:00Z']),
      policy: { evaluationNumberDays: 365 },
    },
  },
  revocation: {
    'lists in hexadecimal text': {
      collateral: (collateral) => ({
        ...collateral,
        rootCrl: Buffer.from(Buffer.from(collateral.rootCrl).toString('hex')),
        pckCrl: Buffer.from(Buffer.from(collateral.pckCrl).toString('hex').toUpperCase()),
      }),
    },
    'other certificates are revoked': {
      pckList: { revoked: [entry(1), entry(2)] },
      rootList: { revoked: [entry(SERIALS.pck)] },
    },
  },
  'quoting enclave': {
    'attributes outside the mask': inReport(56, 0xe7),
    'an enclave above the level': inReport(258, 9),
  },
  'platform TCB': {
    'the second level': {
      tcbInfo: {
        tcbLevels: [
          levelOf(platformTcb({ pcesvn: 12 })),
          levelOf(platformTcb(), { tcbStatus: 'SWHardeningNeeded' }),
        ],
      },
      policy: { statuses: ['SWHardeningNeeded'] },
    },
    'a level of another version of the module': {
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(9, 9, 7) }))] },
    },
  },
  'TDX module': {
    'a module of version 0': {
      ...inBody(0, 5, 0),
      tcbInfo: { tcbLevels: [levelOf(platformTcb({ tdxtcbcomponents: svns(5, 0, 7) }))] },
    },
  },
  'TCB status': {
    'an accepted status with an accepted advisory': {
      ...onePlatformStatus('SWHardeningNeeded', ['INTEL-SA-00615']),
      policy: { statuses: ['SWHardeningNeeded'], advisories: ['INTEL-SA-00615'] },
    },
  },
  FMSPC: {
    'the second FMSPC': { policy: { fmspcs: ['00806f050000', FMSPC] } },
  },
  'TD attributes': {
    'PKS and PERFMON': inBody(123, 0x50, 0, 0, 0, 0x80),
    'other rules': { ...inBody(123, 0), policy: { tdAttributes: { required: 0n, allowed: 0n } } },
  },
  XFAM: { 'x87 and SSE alone': inBody(128, 3, 0, 0) },
  'service TD': {
    'a report of TD 1.5 without one': { version: 5, tdVersion: '1.5' },
  },
  measurements: {
    'the second set': {
      policy: { measurements: [{ mrTd: new Uint8Array(48) }, { rtmr3: new Uint8Array(48) }] },
    },
  },
  'report data': { 'the expected report data': {} },
})

/** Policies that are errors of the call. */
export const brokenTdxPolicies: readonly (readonly [string, unknown])[] = [
  ['an empty list of measurements', { evaluationNumberMin: 18, measurements: [] }],
  ['an empty set of measurements', { evaluationNumberMin: 18, measurements: [{}] }],
  [
    'a set with an unknown name',
    { evaluationNumberMin: 18, measurements: [{ rtmr4: new Uint8Array(48) }] },
  ],
  [
    'a measurement of 32 bytes',
    { evaluationNumberMin: 18, measurements: [{ mrTd: new Uint8Array(32) }] },
  ],
  ['no measurements', { evaluationNumberMin: 18 }],
  ['an unknown option', { measurements: 'any', evaluationNumberMin: 18, debug: true }],
  ['report data of null', { measurements: 'any', evaluationNumberMin: 18, reportData: null }],
  [
    'report data of 32 bytes',
    { measurements: 'any', evaluationNumberMin: 18, reportData: new Uint8Array(32) },
  ],
  ['Revoked as accepted', { measurements: 'any', evaluationNumberMin: 18, statuses: ['Revoked'] }],
  ['an unknown status', { measurements: 'any', evaluationNumberMin: 18, statuses: ['Fine'] }],
  [
    'advisories that are no list',
    { measurements: 'any', evaluationNumberMin: 18, advisories: 'INTEL-SA-00615' },
  ],
  ['no floor of the evaluation number', { measurements: 'any' }],
  ['an age below zero', { measurements: 'any', evaluationNumberMin: 18, evaluationNumberDays: -1 }],
  ['a floor that is a text', { measurements: 'any', evaluationNumberMin: '18' }],
  ['an empty list of FMSPCs', { measurements: 'any', evaluationNumberMin: 18, fmspcs: [] }],
  [
    'an FMSPC in upper case',
    { measurements: 'any', evaluationNumberMin: 18, fmspcs: ['B0C06F000000'] },
  ],
  [
    'rules that are numbers',
    { measurements: 'any', evaluationNumberMin: 18, xfam: { required: 3, allowed: 7 } },
  ],
  ['no roots', { measurements: 'any', evaluationNumberMin: 18, roots: [] }],
]
