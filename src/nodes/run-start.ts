import type { Lane } from './node-index.ts'
import type { RunOptions } from './node-run.ts'

/** What a run needs besides its connection. */
export type RunStart = Pick<
  RunOptions,
  'requestBytes' | 'promptTokensMax' | 'choices' | 'slot' | 'signal' | 'reader' | 'isProbe' | 'accountId'
> & {
  readonly lane: Lane
  /** The frame for a request id. */
  readonly frameOf: (id: string, traceparent: string | null) => string
}
