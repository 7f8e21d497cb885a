import { OutsideText } from '../kit/outside-text.tsx'

const PATH_SHOWN_MAX = 200

export function MissingPage() {
  return (
    <>
      <h1>This page does not exist</h1>
      <p class="lead">
        This gateway has nothing at{' '}
        <code>
          <OutsideText text={location.pathname} isOneLine={true} shownMax={PATH_SHOWN_MAX} />
        </code>
        . Check the address: it may be cut off, or belong to another gateway.
      </p>
      <h2>Where to go</h2>
      <ul>
        {PLACES.map(({ path, name, what }) => (
          <li key={path}>
            <a href={path}>{name}</a>: {what}
          </li>
        ))}
      </ul>
    </>
  )
}

const PLACES = [
  { path: '/', name: 'Home', what: 'what you can do here, and the state of the service.' },
  {
    path: '/verify',
    name: 'Check an answer',
    what: 'your browser checks who signed it, and when.',
  },
  {
    path: '/log',
    name: 'Look at the logs',
    what: 'which enclaves sign, since when, and how many answers each log has.',
  },
  {
    path: '/docs',
    name: 'Call the API',
    what: 'samples, every operation, and what the words mean.',
  },
] as const
