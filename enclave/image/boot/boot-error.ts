/** Why an image did not boot, or its enclave gave no verified completion. */
type BootErrorCode =
  | 'options' //          an option is unknown or has no such value
  | 'missing_tool' //     qemu is not installed
  | 'machine_ended' //    the machine ended before it was stopped
  | 'timeout' //          something did not come in time
  | 'program_failed' //   chain, demonstration provider or gateway did not start
  | 'call_failed' //      the gateway answered a call with an error
  | 'not_verified' //     the evidence does not show what was booted

/** The message says what was expected, and holds the end of what the program at fault wrote. */
export class BootError extends Error {
  override readonly name = 'BootError'
  readonly code: BootErrorCode

  constructor(code: BootErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
