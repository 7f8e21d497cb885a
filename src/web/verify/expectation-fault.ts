/** An expectation that makes no sense: nothing is checked until the reader corrects it. */
export class ExpectationFault extends Error {
  /** What the reader can do. */
  readonly advice: string

  constructor(message: string, advice: string) {
    super(message)
    this.name = 'ExpectationFault'
    this.advice = advice
  }
}
