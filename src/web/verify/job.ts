import type { EifReport } from '#attestation/eif/measure-eif.ts'
import type { AttestationFacts, RuleOutcome } from '#attestation/nitro/facts.ts'
import type { EvidenceJudgement } from '#attestation/report/judge-evidence.ts'
import type { ReleaseJudgement } from '#attestation/report/judge-releases.ts'
import type { ReleaseFile } from '#attestation/report/release-file.ts'
import type { ImageComparison } from './compare-image.ts'

/** What the reader entered: texts of fields, and files. */
export type GivenPolicy = {
  /** Signed releases, or lists of signed releases. */
  readonly releases: readonly Blob[]
  /** One per line. */
  readonly releaseKeys: string
  /** How many of the release keys must have signed a release. Empty: one. */
  readonly releaseSigners: string
  /** `PCR0=hex`, one per line. */
  readonly measurements: string
  readonly anyMeasurement: boolean
  readonly allowDebug: boolean
  /** Digests, one per line. */
  readonly configurations: string
  /** Files with JSON. */
  readonly configurationFiles: readonly Blob[]
  /** PEM of root certificates to trust in place of AWS's. */
  readonly rootText: string
  readonly roots: readonly Blob[]
  readonly revocationLists: readonly Blob[]
  /** `providers` of a policy, as JSON. */
  readonly providers: string
  /** Outcomes of incomplete answers that the reader accepts. */
  readonly outcomes: readonly ('client_disconnected' | 'upstream_error')[]
  readonly confirmations: string
  /** Hex, only for a document without other evidence. `0x`: an empty nonce. */
  readonly nonce: string
  /** The time at which a document must be valid. Only for a document without other evidence. */
  readonly time: 'now' | 'own' | 'given'
  /** ISO 8601, or Unix seconds. */
  readonly at: string
  /** Maximum age of a document, seconds. */
  readonly maxAge: string
}

/** Blobs in the page's fields are files that the reader chose. */
export type FormPolicy = GivenPolicy & {
  readonly releases: readonly File[]
  readonly configurationFiles: readonly File[]
  readonly roots: readonly File[]
  readonly revocationLists: readonly File[]
}

export const NO_POLICY: FormPolicy = {
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
  providers: '',
  outcomes: [],
  confirmations: '',
  nonce: '',
  time: 'now',
  at: '',
  maxAge: '',
}
export type Filled = Pick<
  FormPolicy,
  | 'releases'
  | 'releaseKeys'
  | 'releaseSigners'
  | 'measurements'
  | 'configurations'
  | 'configurationFiles'
  | 'roots'
  | 'rootText'
> &
  Partial<Pick<FormPolicy, 'providers'>>

/** `auto`: the first bytes show the kind. */
export type SourceKind = 'auto' | 'evidence' | 'document' | 'release' | 'image'

export type Job = {
  readonly source: Blob
  readonly kind: SourceKind
  /** Files that the reader kept: the body of the request, and the answer. */
  readonly request: Blob | null
  readonly answer: Blob | null
  /** True if the kept stream is from a call with an `Idempotency-Key`. */
  readonly idempotent: boolean
  readonly policy: GivenPolicy
  /** The endpoint of the chain, to ask about the block. Null: the chain is not asked. */
  readonly rpc: string | null
}

export type JobOutcome =
  | {
      readonly kind: 'evidence'
      readonly judged: EvidenceJudgement
      readonly expected: Expected
      /** Why the chain's endpoint gave no facts. Null: it gave them, or was not asked. */
      readonly unreached: string | null
    }
  | { readonly kind: 'document'; readonly found: DocumentFound }
  | {
      readonly kind: 'release'
      readonly file: ReleaseFile
      readonly judged: ReleaseJudgement
      /** For each release in a list: whether a new document from this release is accepted now. */
      readonly statuses: readonly { readonly status: string; readonly message: string }[]
    }
  | { readonly kind: 'image'; readonly found: ImageFound }
  /** The source could not be checked. `message` states why, `advice` what the reader can do. */
  | { readonly kind: 'refused'; readonly message: string; readonly advice: string }

/** What the policy of the reader has. It decides which advice the report gives. */
export type Expected = {
  readonly code: boolean
  readonly configuration: boolean
  /** True if a root other than AWS's is trusted. */
  readonly isDevelopment: boolean
  readonly chain: boolean
  /** Lines that say who signed which release. */
  readonly releases: readonly string[]
}

export type DocumentFound =
  | {
      readonly valid: true
      readonly facts: AttestationFacts
      readonly anyCode: boolean
      /** False if no release and no expected PCR0 matched: other registers do not name the code. */
      readonly isCodeKnown: boolean
      /** True if a root other than AWS's is trusted. */
      readonly isDevelopment: boolean
    }
  | {
      readonly valid: false
      readonly code: string
      readonly message: string
      readonly rules: readonly RuleOutcome[]
    }

export type ImageFound =
  | { readonly valid: true; readonly report: EifReport; readonly comparison: ImageComparison }
  | { readonly valid: false; readonly code: string; readonly message: string }

/** From the page to its worker: a job, or a file that fills fields of the policy. */
export type JobRequest = { readonly id: number; readonly job: Job } | { readonly fill: Blob }
/** From the worker to the page. */
export type JobReply =
  | { readonly id: number; readonly done: number }
  | { readonly id: number; readonly outcome: JobOutcome }
export type FilledReply =
  | { readonly filled: Filled }
  | { readonly message: string; readonly advice: string }
