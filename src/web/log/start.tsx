import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentPolicy } from '../verify/development-policy.ts'
import { fillHere } from '../verify/fill-here.ts'
import { LogPage } from './log-page.tsx'
import { LogsPage } from './logs-page.tsx'

/** Null on the page that lists all logs. */
const [, name = null] = /^\/log\/(.*)$/.exec(location.pathname) ?? []

void takeDevelopmentPolicy(fillHere).then(() =>
  showPage(name === null || name === '' ? <LogsPage /> : <LogPage name={name} />),
)
