type BootErrorCode =
  | 'options' // an option is unknown or has a wrong value
  | 'missing_tool' //     qemu is not installed
  | 'machine_ended' // the machine ended unexpectedly
  | 'timeout' // a time limit was exceeded
  | 'program_failed' // the chain, the demonstration provider or the gateway did not start
  | 'call_failed' //      the gateway answered a call with an error
  | 'not_verified' // the evidence does not match the booted image

/** The message states what was expected, and contains the end of the failed program's output. */
export class BootError extends Error {
  override readonly name = 'BootError'
  readonly code: BootErrorCode

  constructor(code: BootErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
