/** A part could not be started. The message names the part and what it said; it is for whoever started this process. */
export class StartFailure extends Error {
  override readonly name = 'StartFailure'
}
