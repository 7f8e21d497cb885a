import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, type JsonObject, memberOf } from '../../json/value.ts'
import { orRefuse } from '../provider-error.ts'
import { type TdxCode, tdxFault } from './tdx-codes.ts'

/** From the best to the worst. */
export const TCB_STATUSES = [
  'UpToDate',
  'SWHardeningNeeded',
  'ConfigurationNeeded',
  'ConfigurationAndSWHardeningNeeded',
  'OutOfDate',
  'OutOfDateConfigurationNeeded',
  'Revoked',
] as const

export type TcbStatus = (typeof TCB_STATUSES)[number]

export type TcbVerdict = {
  readonly status: TcbStatus
  /** Intel's security advisories that concern the level, such as INTEL-SA-00837. */
  readonly advisories: readonly string[]
  /** Intel's date of the level, Unix milliseconds. */
  readonly tcbDateMs: number
}

/** Modules and enclaves with an SVN of at least `isvSvn` reach the level. */
export type SvnLevel = TcbVerdict & { readonly isvSvn: number }

export type PlatformLevel = TcbVerdict & {
  readonly sgxComponents: readonly number[]
  readonly pceSvn: number
  readonly tdxComponents: readonly number[]
}

/** The signer and attributes that a TDX module must have. Lower-case hex, like all hex here. */
export type TdxModuleIdentity = {
  /** The signer and attributes that a TDX module must have, in lower-case hex. */
  readonly mrSigner: string
  /** 8 bytes. Only bits that are set in the mask count. */
  readonly attributes: string
  readonly attributesMask: string
}

/** A text of Intel, and when it is in force. */
export type Issue = {
  readonly id: string
  readonly version: number
  /** Unix milliseconds, inclusive. */
  readonly issueDateMs: number
  readonly nextUpdateMs: number
}

type Evaluation = Issue & {
  /** Increases with each TCB recovery that Intel publishes. */
  readonly evaluationNumber: number
}

/** The evaluation numbers that Intel offers (PCS, TCB evaluation data numbers, version 1). */
export type EvaluationNumbers = Issue & {
  readonly numbers: readonly {
    readonly evaluationNumber: number
    /** When Intel published the faults that the number considers. Unix milliseconds. */
    readonly recoveryMs: number
  }[]
}

/** TCB levels of one kind of platform (PCS, TCB info, version 3). */
export type TcbInfo = Evaluation & {
  /** 0 means that levels are compared component by component. */
  readonly tcbType: number
  readonly fmspc: string
  readonly pceId: string
  /** The identity of TDX modules of version 0. */
  readonly tdxModule: TdxModuleIdentity
  /** Identities of other module versions, by id: `TDX_01` is version 1. */
  readonly moduleIdentities: ReadonlyMap<
    string,
    TdxModuleIdentity & { readonly levels: readonly SvnLevel[] }
  >
  /** Highest level first, as Intel sorts them. */
  readonly levels: readonly PlatformLevel[]
}

/** Identity of Intel's quoting enclave for TDX (PCS, enclave identity, version 2). */
export type QeIdentity = Evaluation & {
  /** 4 bytes. Only bits that are set in the mask count. */
  readonly miscSelect: string
  readonly miscSelectMask: string
  /** 16 bytes. */
  readonly attributes: string
  readonly attributesMask: string
  /** 32 bytes. */
  readonly mrSigner: string
  readonly isvProdId: number
  readonly levels: readonly SvnLevel[]
}

/** Parses a TCB info. Other members are allowed. Throws ProviderEvidenceError. */
export function parseTcbInfo(bytes: Uint8Array): TcbInfo {
  return parse('tcb_info_malformed', 'TCB info', (read) => {
    const info = read.objectOf(parseExactJson(bytes), 'the text')
    const module = read.objectOf(memberOf(info, 'tdxModule'), 'tdxModule')
    const identities = memberOf(info, 'tdxModuleIdentities') ?? []
    return {
      ...read.evaluationOf(info),
      tcbType: read.countOf(memberOf(info, 'tcbType'), 'tcbType'),
      fmspc: read.hexOf(memberOf(info, 'fmspc'), 'fmspc', 6),
      pceId: read.hexOf(memberOf(info, 'pceId'), 'pceId', 2),
      tdxModule: read.moduleOf(module),
      moduleIdentities: new Map(
        read.arrayOf(identities, 'tdxModuleIdentities', ITEMS).map((json) => {
          const one = read.objectOf(json, 'a module identity')
          const id = read.textOf(memberOf(one, 'id'), 'id')
          return [id, { ...read.moduleOf(one), levels: read.svnLevelsOf(one) }]
        }),
      ),
      levels: read.levelsOf(info, (tcb) => ({
        sgxComponents: read.componentsOf(tcb, 'sgxtcbcomponents'),
        pceSvn: read.countOf(memberOf(tcb, 'pcesvn'), 'pcesvn'),
        tdxComponents: read.componentsOf(tcb, 'tdxtcbcomponents'),
      })),
    }
  })
}

/** Parses a QE identity. Other members are allowed. Throws ProviderEvidenceError. */
export function parseQeIdentity(bytes: Uint8Array): QeIdentity {
  return parse('qe_identity_malformed', 'QE identity', (read) => {
    const identity = read.objectOf(parseExactJson(bytes), 'the text')
    const hex = (name: string, length: number) => read.hexOf(memberOf(identity, name), name, length)
    return {
      ...read.evaluationOf(identity),
      miscSelect: hex('miscselect', 4),
      miscSelectMask: hex('miscselectMask', 4),
      attributes: hex('attributes', 16),
      attributesMask: hex('attributesMask', 16),
      mrSigner: hex('mrsigner', 32),
      isvProdId: read.countOf(memberOf(identity, 'isvprodid'), 'isvprodid'),
      levels: read.svnLevelsOf(identity),
    }
  })
}

/**
 * Parses the numbers that Intel offers. Other members are allowed. Throws ProviderEvidenceError.
 */
export function parseEvaluationNumbers(bytes: Uint8Array): EvaluationNumbers {
  return parse('evaluation_numbers_malformed', 'evaluation numbers', (read) => {
    const text = read.objectOf(parseExactJson(bytes), 'the text')
    const entries = read.arrayOf(memberOf(text, 'tcbEvalNumbers'), 'tcbEvalNumbers', {
      ...ITEMS,
      min: 1,
    })
    return {
      ...read.issueOf(text),
      numbers: entries.map((json) => {
        const entry = read.objectOf(json, 'an entry')
        const date = memberOf(entry, 'tcbRecoveryEventDate')
        return {
          evaluationNumber: read.numberOf(entry),
          recoveryMs: read.dateOf(date, 'tcbRecoveryEventDate'),
        }
      }),
    }
  })
}

/**
 * Length limits for a list of levels, identities or advisories. Real lists have up to 40 entries.
 */
const ITEMS = { min: 0, max: 256 }
const COMPONENTS = { min: 16, max: 16 }
const SVN_MAX = 255

function parse<Value>(
  code: TdxCode,
  name: string,
  find: (read: ReturnType<typeof readersOf>) => Value,
): Value {
  return orRefuse(tdxFault, code, () => find(readersOf(code, `${name}: `)))
}

function readersOf(code: TdxCode, prefix: string) {
  const forms = formsOf(code, prefix)

  /** Lower-cases the hex: Intel writes both cases. */
  const hexOf = (json: Json | undefined, name: string, bytes: number): string =>
    forms.hexOf(typeof json === 'string' ? json.toLowerCase() : json, name, bytes)

  const dateOf = (json: Json | undefined, name: string): number => {
    const text = forms.textOf(json, name, DATE)
    const timeMs = Date.parse(text)
    // Some engines read a day that does not exist, such as 30 February, as another day.
    const isDay =
      !Number.isNaN(timeMs) && new Date(timeMs).toISOString().startsWith(text.slice(0, -1))
    if (!isDay) throw forms.invalid(name, DATE.expectation)
    return timeMs
  }

  const levelsOf = <Level>(
    json: JsonObject,
    parseTcb: (tcb: JsonObject) => Level,
  ): readonly (Level & TcbVerdict)[] =>
    forms.arrayOf(memberOf(json, 'tcbLevels'), 'tcbLevels', ITEMS).map((entry) => {
      const level = forms.objectOf(entry, 'a level')
      const tcb = forms.objectOf(memberOf(level, 'tcb'), 'tcb')
      const advisories = memberOf(level, 'advisoryIDs') ?? []
      return {
        ...parseTcb(tcb),
        status: statusOf(memberOf(level, 'tcbStatus')),
        tcbDateMs: dateOf(memberOf(level, 'tcbDate'), 'tcbDate'),
        advisories: forms
          .arrayOf(advisories, 'advisoryIDs', ITEMS)
          .map((id) => forms.textOf(id, 'an advisory', ADVISORY)),
      }
    })

  const statusOf = (json: Json | undefined): TcbStatus => {
    const status = TCB_STATUSES.find((one) => one === json)
    if (status === undefined) throw forms.invalid('tcbStatus', 'a status of Intel')
    return status
  }

  const issueOf = (json: JsonObject): Issue => ({
    id: forms.textOf(memberOf(json, 'id'), 'id'),
    version: forms.countOf(memberOf(json, 'version'), 'version'),
    issueDateMs: dateOf(memberOf(json, 'issueDate'), 'issueDate'),
    nextUpdateMs: dateOf(memberOf(json, 'nextUpdate'), 'nextUpdate'),
  })

  const numberOf = (json: JsonObject): number =>
    forms.countOf(memberOf(json, 'tcbEvaluationDataNumber'), 'tcbEvaluationDataNumber')

  return {
    ...forms,
    hexOf,
    dateOf,
    numberOf,
    levelsOf,
    evaluationOf: (json: JsonObject): Evaluation => ({
      ...issueOf(json),
      evaluationNumber: numberOf(json),
    }),
    issueOf,

    moduleOf: (json: JsonObject): TdxModuleIdentity => ({
      mrSigner: hexOf(memberOf(json, 'mrsigner'), 'mrsigner', 48),
      attributes: hexOf(memberOf(json, 'attributes'), 'attributes', 8),
      attributesMask: hexOf(memberOf(json, 'attributesMask'), 'attributesMask', 8),
    }),

    svnLevelsOf: (json: JsonObject): readonly SvnLevel[] =>
      levelsOf(json, (tcb) => ({ isvSvn: forms.countOf(memberOf(tcb, 'isvsvn'), 'isvsvn') })),

    componentsOf: (tcb: JsonObject, name: string): readonly number[] =>
      forms.arrayOf(memberOf(tcb, name), name, COMPONENTS).map((component) => {
        const svn = forms.countOf(memberOf(forms.objectOf(component, name), 'svn'), 'svn')
        if (svn > SVN_MAX) throw forms.invalid('svn', `at most ${SVN_MAX}`)
        return svn
      }),
  }
}

const DATE = {
  form: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
  expectation: 'a time as YYYY-MM-DDThh:mm:ssZ',
}
/** Without control characters, because people read these names. */
const ADVISORY = { form: /^[A-Za-z0-9-]{1,64}$/, expectation: 'the name of an advisory' }
