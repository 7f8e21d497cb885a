/** A policy is invalid. The page checks nothing until the reader corrects the policy. */
export class PolicyFault extends Error {
  readonly advice: string

  constructor(message: string, advice: string) {
    super(message)
    this.name = 'PolicyFault'
    this.advice = advice
  }
}
