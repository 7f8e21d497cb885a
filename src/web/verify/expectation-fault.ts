/** An expectation is invalid. The page checks nothing until the reader corrects the expectation. */
export class ExpectationFault extends Error {
  readonly advice: string

  constructor(message: string, advice: string) {
    super(message)
    this.name = 'ExpectationFault'
    this.advice = advice
  }
}
