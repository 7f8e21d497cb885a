import type { EifReport } from '../../../attestation/eif/measure-eif.ts'
import type { AttestationFacts, RuleOutcome } from '../../../attestation/nitro/facts.ts'
import type { ReleaseFile } from '../../../attestation/report/expectation-files.ts'
import type { EvidenceJudgement } from '../../../attestation/report/judge-evidence.ts'
import type { ReleaseJudgement } from '../../../attestation/report/judge-releases.ts'

/** The reader's expectations, in the form in which they were given: texts of fields, and files. */
export type GivenExpectations = {
  /** Signed releases, or lists of them. */
  readonly releases: readonly Blob[]
  /** Release keys, a line each. */
  readonly releaseKeys: string
  /** How many of them must have signed; empty: one. */
  readonly releaseSigners: string
  /** `PCR0=hex`, a line each. */
  readonly measurements: string
  readonly anyMeasurement: boolean
  readonly allowDebug: boolean
  /** Digests of boot configurations, a line each. */
  readonly configurations: string
  /** Boot configurations as JSON. */
  readonly configurationFiles: readonly Blob[]
  /** PEM of roots to trust in place of AWS's. */
  readonly rootText: string
  readonly roots: readonly Blob[]
  readonly revocationLists: readonly Blob[]
  /** The outcomes of a cut answer that the reader accepts. */
  readonly outcomes: readonly ('client_disconnected' | 'upstream_error')[]
  readonly confirmations: string
  /** For a document alone: its nonce, hex; `0x` for a nonce without bytes. */
  readonly nonce: string
  /** The time at which a document alone must be valid. */
  readonly time: 'now' | 'own' | 'given'
  /** ISO 8601, or Unix seconds. */
  readonly at: string
  /** Most seconds that a document may be old. */
  readonly maxAge: string
}

/** The expectations in the form's own fields: their blobs are files that were chosen. */
export type FormExpectations = GivenExpectations & {
  readonly releases: readonly File[]
  readonly configurationFiles: readonly File[]
  readonly roots: readonly File[]
  readonly revocationLists: readonly File[]
}

/** Nothing is expected. */
export const NO_EXPECTATIONS: FormExpectations = {
  releases: [],
  releaseKeys: '',
  releaseSigners: '',
  measurements: '',
  anyMeasurement: false,
  allowDebug: false,
  configurations: '',
  configurationFiles: [],
  rootText: '',
  roots: [],
  revocationLists: [],
  outcomes: [],
  confirmations: '',
  nonce: '',
  time: 'now',
  at: '',
  maxAge: '',
}
/** The fields that a file fills. */
export type Filled = Pick<
  FormExpectations,
  | 'releases'
  | 'releaseKeys'
  | 'releaseSigners'
  | 'measurements'
  | 'configurations'
  | 'configurationFiles'
  | 'roots'
  | 'rootText'
>

/** The kind of a source; `auto`: by how it begins. */
export type SourceKind = 'auto' | 'evidence' | 'document' | 'release' | 'image'

/** One source to be checked. */
export type Job = {
  readonly source: Blob
  readonly kind: SourceKind
  /** The files that the reader kept: the request body that was sent, the answer that came. */
  readonly request: Blob | null
  readonly answer: Blob | null
  /** Whether the call of a kept stream was sent with an `Idempotency-Key`. */
  readonly idempotent: boolean
  readonly expectations: GivenExpectations
  /** The chain's endpoint, which is asked about the block; null: the chain is not asked. */
  readonly rpc: string | null
}

/** The result of a job. */
export type JobOutcome =
  | { readonly kind: 'evidence'; readonly judged: EvidenceJudgement; readonly expected: Expected }
  | { readonly kind: 'document'; readonly found: DocumentFound }
  | {
      readonly kind: 'release'
      readonly file: ReleaseFile
      readonly judged: ReleaseJudgement
      /** For each release of a list: whether documents that are made now are accepted. */
      readonly statuses: readonly { readonly status: string; readonly message: string }[]
    }
  | { readonly kind: 'image'; readonly found: ImageFound }
  /** The source could not be checked: why, and what to do. */
  | { readonly kind: 'refused'; readonly message: string; readonly advice: string }

/** The expectations of a job, as far as the report's advice depends on them. */
export type Expected = {
  readonly code: boolean
  readonly configuration: boolean
  /** Whether a root is trusted that is not AWS's. */
  readonly isDevelopment: boolean
  readonly chain: boolean
  /** Lines about files of releases: who signed which. */
  readonly releases: readonly string[]
}

export type DocumentFound =
  | {
      readonly valid: true
      readonly facts: AttestationFacts
      readonly anyCode: boolean
      /** Whether a root is trusted that is not AWS's. */
      readonly isDevelopment: boolean
    }
  | {
      readonly valid: false
      readonly code: string
      readonly message: string
      readonly rules: readonly RuleOutcome[]
    }

export type ImageFound =
  | { readonly valid: true; readonly report: EifReport; readonly matches: boolean | null }
  | { readonly valid: false; readonly code: string; readonly message: string }

/** The messages of the page to its worker: a job, or a file that fills fields of expectations. */
export type JobRequest = { readonly id: number; readonly job: Job } | { readonly fill: Blob }
/** The messages of the worker to the page. */
export type JobReply =
  | { readonly id: number; readonly done: number }
  | { readonly id: number; readonly outcome: JobOutcome }
export type FilledReply =
  | { readonly filled: Filled }
  | { readonly message: string; readonly advice: string }
