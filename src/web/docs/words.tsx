import { State, type Tone } from '../kit/notices.tsx'
import { Prose } from './prose.tsx'

/** What each verdict and state of a check means, and what the reader should do. */
const WORDS: readonly {
  readonly word: string
  readonly tone: Tone
  readonly means: string
  readonly next: string
}[] = [
  {
    word: 'verified',
    tone: 'good',
    means:
      'All necessary checks passed: an enclave that you accept signed exactly this question and this answer, and a transaction in a block records them. Only a chain endpoint shows that the chain has this block.',
    next: 'Rely on what was asked, what was answered and by which provider; on the time only if “block on chain” passed. It does not show that the answer is true.',
  },
  {
    word: 'incomplete',
    tone: 'open',
    means:
      'No check failed, but a necessary check was not made, most often because you did not say which enclaves you accept.',
    next: 'Give the `policy.json` of your vendor and check again. Until then, any person could have signed it.',
  },
  {
    word: 'invalid',
    tone: 'bad',
    means: 'A check failed: the evidence was changed or forged.',
    next: 'Do not rely on it. Ask for it again at the place it came from.',
  },
  {
    word: 'not accepted',
    tone: 'warn',
    means:
      'Nothing contradicts the evidence, but your policy does not accept it: it is of another enclave, release, root or provider. The first line says what was expected, and what was found.',
    next: 'Do not rely on it. If it should be accepted, ask your vendor for a newer policy.',
  },
  {
    word: 'not checked',
    tone: 'open',
    means:
      'The check was not made, because something for it is missing: your policy, the question and the answer, or a view of the chain. It never counts as passed.',
    next: 'Give what the line names, such as `policy.json` or the endpoint of a chain, and check again.',
  },
]

export function Words() {
  return (
    <>
      <h2 id="words">What the words mean</h2>
      <dl class="words">
        {WORDS.map(({ word, tone, means, next }) => (
          <div key={word} id={word.toLowerCase().replaceAll(' ', '-')}>
            <dt>
              <State tone={tone}>{word}</State>
            </dt>
            <dd>{means}</dd>
            <dd>
              <Prose text={next} />
            </dd>
          </div>
        ))}
      </dl>
    </>
  )
}
