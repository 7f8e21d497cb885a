/**
 * The API for callers of the gateway. README.md explains what the client checks and what it does
 * not.
 */

export type { EnclavesPolicy, Policy } from '#attestation/report/policy-file.ts'
export type { AnchoredEvidence, AnchoredOptions } from './anchored.ts'
export type { AttestedNotary, NotaryCheckName } from './attest-notary.ts'
export type { AnswerCheck, AnswerCheckName } from './check-answer.ts'
export { type Affidavit, type ConnectOptions, connect } from './connect.ts'
export { AffidavitError, type AffidavitErrorCode } from './errors.ts'
export type { Fetch } from './gateway.ts'
export type { RefusedNotary } from './notaries.ts'
export type { Proof, Proofs } from './proof.ts'
export type { AttestedProvider, RefusedProvider } from './providers.ts'
export type { CallSession, CallSessionOptions } from './session.ts'
