import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from '../verify/development-expectations.ts'
import { CompletionPage } from './completion-page.tsx'

void takeDevelopmentExpectations().then(() =>
  showPage(<CompletionPage name={location.pathname.replace(/^\/c\//, '')} />),
)
