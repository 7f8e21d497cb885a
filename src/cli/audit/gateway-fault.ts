import type { FindingCode } from './findings.ts'

/** The codes of a gateway that does not answer as it must. */
export type GatewayFaultCode = Extract<
  FindingCode,
  | 'gateway_unreachable'
  | 'answer_refused'
  | 'answer_invalid'
  | 'answer_too_large'
  | 'answer_too_slow'
  | 'redirected'
  | 'cursor_stuck'
  | 'leaf_missing'
>

/** The gateway's answer cannot be used: what was to be read from it is not audited. The message may hold its words. */
export class GatewayFault extends Error {
  override readonly name = 'GatewayFault'
  readonly code: GatewayFaultCode
  /** What was asked: path and query. */
  readonly where: string
  /** Of an answer; null when there was none. */
  readonly status: number | null

  constructor(
    code: GatewayFaultCode,
    fault: { readonly where: string; readonly message: string; readonly status?: number },
  ) {
    super(fault.message)
    this.code = code
    this.where = fault.where
    this.status = fault.status ?? null
  }
}
